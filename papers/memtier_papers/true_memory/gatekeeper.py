"""The background job that judges lines by the encoding gate (`gate`).

Pending entries are those without a verdict in the index, so there is no cursor to lose.  A verdict
is a journal event, and it alone decides what the index omits, so that a rebuilt index is the same.
A line is compared only with earlier lines in its own agent's and sender's scope.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from memtier_papers.true_memory import gate, speech_acts
from memtier_papers.true_memory.settings import Gate, GateMode
from memtier_papers.true_memory.verdicts import GateEvent, Verdict, VerdictReader
from memtier_plugin.core.hookspecs import Embedder
from memtier_plugin.core.records import Entry
from memtier_plugin.providers.embedding.load import RemoteEmbedder
from memtier_plugin.storage.index.items import embed_texts
from memtier_plugin.storage.store import Actor

BATCH: Final = 100  # entries whose verdicts are written together
_NEAREST: Final = 60  # of which the earlier lines are used
_VECTORS_CAP: Final = 10_000  # pieces compared for one line
# Which verdicts, or none (""), are updated, by mode.
_DUE: Final[Mapping[GateMode, tuple[str, ...]]] = {
    "tag": ("", "left_out"),
    "index": ("", "rejected"),
}

Signals = tuple[float, float, float | None]  # novelty, salience, prediction error


@dataclass(frozen=True, slots=True)
class GatekeeperReport:
    """The result of a pass: judged entries, rejected ones, and whether more are pending."""

    judged: int = 0
    rejected: int = 0
    left: bool = False


class Gatekeeper:
    """Judges a project's entries on behalf of one agent."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor
        self._store = actor.store

    def run(self, limit: int = 1000, stop: Callable[[], bool] = lambda: False) -> GatekeeperReport:
        """Judge up to ``limit`` entries, oldest first, or convert earlier verdicts to the mode.

        Args:
            stop: polled between batches; what was written by then is complete.

        Raises:
            LedgerError: another process is judging, or nothing could be written.
            IndexProblem: the index cannot be read.
        """
        judged = rejected = 0
        mode = self._store.settings.of(Gate).mode
        if self._store.paused or mode == "off":
            return GatekeeperReport()
        with self._store.exclusive("gate", 0.0):
            while judged < limit and not stop():
                self._store.catch_up_all()
                with self._store.session() as reader:
                    waiting = reader.plugin_tables(VerdictReader)
                    due = waiting.backlog(_DUE[mode], min(BATCH, limit - judged))
                    if not due:
                        return GatekeeperReport(judged, rejected)
                    verdicts = [self._judge(mode, identity, verdict) for identity, verdict in due]
                rejected += sum(verdict != "admitted" for _, verdict, _ in verdicts)
                judged += len(verdicts)
                self._write(verdicts)
        return GatekeeperReport(judged, rejected, left=True)

    def _write(self, verdicts: Sequence[tuple[str, Verdict, Signals | None]]) -> None:
        by_verdict: dict[Verdict, list[tuple[str, Signals | None]]] = {}
        for identity, verdict, signals in verdicts:
            by_verdict.setdefault(verdict, []).append((identity, signals))
        events = [
            GateEvent(
                items=tuple(identity for identity, _ in group),
                verdict=verdict,
                signals=tuple(_rounded(signals) for _, signals in group),
            )
            for verdict, group in sorted(by_verdict.items())
        ]
        self._store.append_events([self._actor.event(event) for event in events], shared=True)

    def _judge(
        self, mode: GateMode, identity: str, before: str
    ) -> tuple[str, Verdict, Signals | None]:
        """Return the verdict on an entry; an earlier verdict is only converted to the mode."""
        refused: Verdict = "left_out" if mode == "index" else "rejected"
        if before:
            return identity, refused, None
        entry = next(iter(self._store.reader().items([identity]).values())).item
        assert isinstance(entry, Entry)
        signals = self.signals(entry)
        category = speech_acts.category(entry.content)
        decision = gate.decide(*signals, category)
        return identity, "admitted" if decision.admit else refused, signals

    def signals(self, entry: Entry) -> Signals:
        """Return the three signals of an entry, compared with earlier lines."""
        near = self._nearest(entry)
        novelty = gate.novelty([line.content for line, _ in near], entry.content)
        salience = speech_acts.salience(entry.content)
        embedder = self._embedder
        if embedder is None:
            return novelty, salience, None
        if not near or salience < gate.FLOOR or len(entry.content.strip()) < 3:
            return novelty, salience, 0.0
        line, cosine = near[0]
        first, text = line.content[: gate.PAIR_CHARS], entry.content[: gate.PAIR_CHARS]
        pairs = [f"{text}{gate.SEPARATOR}{first}", f"{first}{gate.SEPARATOR}{first}"]
        cross, paired = ([*map(float, vector)] for vector in embedder.encode(pairs))
        return novelty, salience, gate.prediction_error(cross, paired, cosine)

    @property
    def _embedder(self) -> Embedder | None:
        """The embedding model, unless it is an endpoint's, which may cost money."""
        embedder = self._store.embedder
        return None if isinstance(embedder, RemoteEmbedder) else embedder

    def _nearest(self, entry: Entry) -> list[tuple[Entry, float]]:
        """Return the nearest earlier lines in an entry's scope, with their cosines."""
        reader, embedder = self._store.reader(), self._embedder
        scopes = reader.scopes(entry.agent_id, entry.sender)
        if embedder is not None:
            [[vector, *_]] = embed_texts(
                embedder, {0: (entry.content[: gate.PAIR_CHARS],)}
            ).values()
            cosines, _ = reader.vectors.nearest(
                embedder.name, scopes, vector, _VECTORS_CAP, _NEAREST
            )
        else:
            words = dict.fromkeys(self._store.tokenizer.words(entry.content), 1.0)
            scores = reader.match_words(scopes, words, _VECTORS_CAP // 10).scores()
            best = sorted(scores, key=lambda row: (-scores[row], row))[:_NEAREST]
            cosines = dict.fromkeys(best, 0.0)
        stored = reader.items_by_row([*cosines])
        here = entry.observed_at, entry.id
        earlier = [
            (item, cosine)
            for row, cosine in cosines.items()
            if row in stored
            and isinstance(item := stored[row].item, Entry)
            and (item.observed_at, item.id) < here
        ]
        return earlier[: gate.NEIGHBOURS]


def _rounded(signals: Signals | None) -> tuple[float | None, ...]:
    return tuple(None if s is None else round(s, 3) for s in signals or ())
