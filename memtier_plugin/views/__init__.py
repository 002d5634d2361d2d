"""View models: the contents of the terminal and web views, computed once for both."""
