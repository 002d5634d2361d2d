"""Origins, redaction, escaping, the fence around a block, restatements."""
