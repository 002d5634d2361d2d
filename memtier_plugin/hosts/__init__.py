"""Installation into host runtimes, and their checks."""
