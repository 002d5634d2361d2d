"""From the outcome of a run to credit for the injected items."""
