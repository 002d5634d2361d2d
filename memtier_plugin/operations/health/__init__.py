"""The health of a project: its status, the checks of `doctor`, and what hooks leave behind."""
