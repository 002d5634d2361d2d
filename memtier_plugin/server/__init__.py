"""JSON-RPC over standard streams and a Unix socket."""
