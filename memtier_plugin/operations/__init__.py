"""Health, repair, job state and re-embedding."""
