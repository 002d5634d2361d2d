"""Records, results, errors, paths, locks and plugins: the foundation of every other package."""

# Every use of MemTier comes by here: where there is no POSIX, no later import fails in its own way.
try:
    import fcntl as fcntl
except ImportError:
    raise ImportError(
        "MemTier needs POSIX file locks: it runs on Linux and macOS; on Windows use WSL"
    ) from None
