"""One ledger for many machines: written centrally, read locally."""
