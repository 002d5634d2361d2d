"""Benchmarks: retrieval on public data sets, and cost at size (`memtier bench`)."""
