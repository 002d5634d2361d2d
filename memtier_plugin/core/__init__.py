"""Records, results, errors, paths, locks and plugins: the foundation of every other package."""

try:
    import fcntl as fcntl
except (
    ImportError
):  # here, as every use of MemTier comes by: no later import may fail in its own way
    raise ImportError(
        "MemTier needs POSIX file locks: it runs on Linux and macOS; on Windows use WSL"
    ) from None
