"""From the outcome of a run to credit for what was injected."""
