"""Origins, redaction, escaping, the fence of a block, repetition."""
