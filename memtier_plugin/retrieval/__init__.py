"""From a query to a prompt block: candidates, signals, ranking, packing, explanation."""
