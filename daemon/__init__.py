"""Background processing: the scheduler, its jobs and their processes."""
