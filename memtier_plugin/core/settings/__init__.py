"""Settings: their schema, their layers, and the YAML files they come from."""
