"""Return whether a change makes recall on a project's own history worse."""
