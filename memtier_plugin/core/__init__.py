"""Records, results, errors, paths, locks and plugins: the foundation of every other package."""
