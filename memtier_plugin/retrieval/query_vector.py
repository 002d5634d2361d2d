"""The query as a vector, and vectors for the newest items that have none."""

from __future__ import annotations

from typing import Final

from memtier_plugin.core.errors import EmbeddingUnavailable
from memtier_plugin.providers.embedding.load import UnavailableEmbedder
from memtier_plugin.providers.embedding.quantise import quantise
from memtier_plugin.providers.embedding.query import RemoteEmbedder, SlowEmbedder, encode_query
from memtier_plugin.retrieval.query import MAX_QUERY_CHARS, QueryVector, Viewer
from memtier_plugin.storage.actor import Actor
from memtier_plugin.storage.index.items import embed_texts
from memtier_plugin.storage.store import Store

_MAX_EMBEDDED: Final = 64  # items embedded before a recall; the daemon does the rest
_MAX_ENCODED: Final = 4  # the same where each takes milliseconds
_NEWEST: Final = 256  # items looked at for that


def embed_query(
    actor: Actor, text: str, viewer: Viewer, until: float | None, degradations: list[str]
) -> QueryVector | None:
    """Return a query as a vector, or None where there is none to compare with.

    Args:
        until: when an endpoint must have answered, a moment of ``time.monotonic()``.
        degradations: gets the reason why there is none.
    """
    store, embedder = actor.store, actor.store.embedder
    if embedder is None:
        return None
    text = text[:MAX_QUERY_CHARS]
    if isinstance(embedder, RemoteEmbedder):
        # Nothing is sent before there is something to compare it with, and never a secret.
        reader = store.reader()
        scopes = reader.scopes(viewer.agent, viewer.sender, read_all=viewer.read_all)
        scopes += reader.shared_scopes(viewer.people)
        if not reader.vectors.is_covered(embedder.name, scopes):
            degradations.append("not embedded yet")
            return None
        text = actor.redactor.redact(text).text
    try:
        [vector] = quantise([encode_query(embedder, text, until)])
    except EmbeddingUnavailable as error:
        degradations.append(f"embedding: {error}")
        return None
    return QueryVector(embedder.name, vector) if any(vector) else None


def embed_newest(store: Store) -> None:
    """Embed some new items that have no vector of the current model.

    A static model embeds what is written at once; this is for encoders and the models of
    plugins.  The rest, and what was written under another model, is left to `operations.reembed`.
    """
    embedder = store.embedder
    if embedder is None or isinstance(embedder, RemoteEmbedder | UnavailableEmbedder):
        return
    limit = _MAX_ENCODED if isinstance(embedder, SlowEmbedder) else _MAX_EMBEDDED
    missing = store.reader().rows_without_vector(embedder.name, limit, _NEWEST)
    if missing:
        store.put_vectors(embedder.name, embed_texts(embedder, missing))
