"""The shared ledger in NATS JetStream."""
