"""Store vectors as int8, and compare them."""

from __future__ import annotations

from collections.abc import Sequence


def quantise(vectors: Sequence[Sequence[float]]) -> list[bytes]:
    """Return each vector as int8, its largest component at ±127.

    The cosine of two such blobs is that of the vectors to about .001. A vector of zeros stays one:
    it has no direction, and no cosine. Shapes: (n, d) floats -> n blobs of d bytes.
    """
    import numpy as np

    rows = np.asarray(vectors, np.float32)
    peaks = np.abs(rows).max(axis=1, keepdims=True)
    rounded = np.rint(rows * (127 / np.where(peaks > 0, peaks, 1))).astype(np.int8)
    return [row.tobytes() for row in rounded]


def cosine_similarity(first: bytes, second: bytes) -> float:
    """Return the cosine of two vectors made by `quantise`, 0 if their lengths differ."""
    import numpy as np

    if len(first) != len(second):
        return 0.0
    a, b = (np.frombuffer(blob, np.int8).astype(np.float64) for blob in (first, second))
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b) + 1e-32))
