"""Records, results, errors, paths, locks, plugins: what every other package builds on."""
