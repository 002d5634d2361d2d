"""View models: what the terminal and the web view show, computed once for both."""
