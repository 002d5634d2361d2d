"""Facts: candidates, verification, conflict resolution, consolidation, review."""
