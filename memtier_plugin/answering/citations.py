"""The ledger lines that an answer cites, as far as the viewer may see them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Final

from memtier_plugin.answering.llm import AnswerFinding
from memtier_plugin.core.formats import to_iso
from memtier_plugin.core.records import Entry, Fact
from memtier_plugin.core.results import Hit
from memtier_plugin.retrieval.block import SHORT_ID_CHARS
from memtier_plugin.retrieval.visibility import PageReader
from memtier_plugin.storage.index.records import Stored

PASSAGE_CHARS: Final = 400  # characters of a cited line


@dataclass(frozen=True, slots=True, kw_only=True)
class Citation:
    """A cited ledger line: its file and line number, speaker, time and text.

    ``fact`` is the fact that led to it, if any; if the viewer may see none of that fact's sources,
    the fact's own line is cited.
    """

    id: str
    agent: str
    session: str
    file: str | None
    line: int | None
    said: datetime
    who: str
    text: str
    fact: str | None = None

    @property
    def short(self) -> str:
        """The end of its id, as shown in the answer."""
        return self.id[-SHORT_ID_CHARS:]

    def to_document(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {**asdict(self), "short": self.short, "said": to_iso(self.said)}


def cite_findings(pages: PageReader, findings: Iterable[AnswerFinding]) -> list[Citation]:
    """Return the lines that findings cite; see `cite_hits`."""
    return cite_hits(pages, [(hit, finding) for finding in findings for hit in finding.sources])


def cite_hits(
    pages: PageReader, hits: Sequence[tuple[Hit, AnswerFinding | None]]
) -> list[Citation]:
    """Return the sources of hits, without those that are missing or not visible.

    A shared fact without visible sources is cited by its own line.

    Args:
        hits: each with the finding that produced it.
    """
    sources: dict[str, tuple[str | None, AnswerFinding | None]] = {}
    for hit, finding in hits:
        fact_id = hit.id if isinstance(hit.item, Fact) else None
        for source in hit.sources:
            sources.setdefault(source.entry, (fact_id, finding))
    visible = pages.visible_entries(sources)
    hidden = [
        hit.id
        for hit, _ in hits
        if isinstance(hit.item, Fact) and not any(s.entry in visible for s in hit.sources)
    ]
    facts = pages.visible_facts(hidden)
    return [
        *(_cite_entry(visible[entry], *sources[entry]) for entry in sources if entry in visible),
        *(_cite_fact(facts[fact_id]) for fact_id in dict.fromkeys(hidden) if fact_id in facts),
    ]


def _cite_entry(hit: Hit, fact_id: str | None, finding: AnswerFinding | None) -> Citation:
    entry = hit.item
    assert isinstance(entry, Entry)  # only entries are sources
    [source] = hit.sources
    quote = finding.quote.text if finding and finding.quote else entry.content
    return Citation(
        id=entry.id,
        agent=entry.agent_id,
        session=entry.session_id,
        file=source.file,
        line=source.line,
        said=entry.observed_at,
        who=entry.speaker or entry.role,
        text=quote[:PASSAGE_CHARS],
        fact=fact_id,
    )


def _cite_fact(stored: Stored) -> Citation:
    fact = stored.item
    assert isinstance(fact, Fact)
    return Citation(
        id=fact.id,
        agent=fact.sources[0].agent,
        session="",
        file=stored.file,
        line=stored.line,
        said=fact.valid_from or fact.timestamp,
        who="fact",
        text=fact.text[:PASSAGE_CHARS],
        fact=fact.id,
    )
