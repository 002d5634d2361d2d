"""Working memory: write the running summary of a session, as a fact of its agent and sender.

Derived from the session's lines, it can be made again at any time; a later one supersedes it, and
what becomes of a line that it quotes (forgotten, purged) becomes of it.  By rules wherever a host
waits; the background job may ask a model to word it (Mem-T, 3.1, UpdWork).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Final

from memtier_plugin.core.events import SupersedeEvent
from memtier_plugin.core.formats import to_iso
from memtier_plugin.core.records import Entry, Fact, count_tokens
from memtier_plugin.facts.summaries.selection import (
    SourceSentence,
    find_sentences,
    format_quote,
    is_telling,
    select_sentences,
)
from memtier_plugin.facts.summaries.wording import PROMPT_TOKENS, PassModel, quote_lines
from memtier_plugin.retrieval.session import AT_COMPACTION, RELATION, SHELF
from memtier_plugin.storage.actor import Actor
from memtier_plugin.storage.budget import ChatBudget
from memtier_plugin.storage.index.overviews import LineGroup

# -- Keep a running summary of a session: fold it, four lines at a time, into a few sentences.  Pure
#
# The update rule of Mem-T's working memory (3.1, UpdWork) without a model: what the session is for,
# and the user's newest words, always stand in it; of the rest the sentences that say most, of those
# kept so far and of the new lines.  Extractive, so that it has nothing that nobody said.

BATCH: Final = 4  # lines that are folded in at once (Mem-T, 3.1)
MAX_TOKENS: Final = 240  # of what is quoted

Tokenize = Callable[[str], Sequence[str]]


def fold_session(
    lines: Sequence[Entry], words: Tokenize, rarity: Mapping[str, float], budget: int = MAX_TOKENS
) -> list[SourceSentence]:
    """Return the sentences of a running summary after all lines, in their order.

    Args:
        lines: of one session, in order.
        words: the tokenizer.
        rarity: the worth of each word, by how few lines have it.
        budget: tokens of what is quoted.
    """
    kept: list[SourceSentence] = []
    for start in range(0, len(lines), BATCH):
        kept = _fold(kept, lines[start : start + BATCH], words, rarity, budget)
    return kept


def _fold(
    kept: Sequence[SourceSentence],
    batch: Sequence[Entry],
    words: Tokenize,
    rarity: Mapping[str, float],
    budget: int,
) -> list[SourceSentence]:
    """Return the summary after a batch: its purpose, the newest wish, and what else says most."""
    new = [sentence for sentence in find_sentences(batch) if is_telling(sentence, words)]
    from_user = [sentence for sentence in new if sentence.entry.role == "user"]
    pinned = dict.fromkeys([*(kept[:1] or from_user[:1]), *from_user[-1:]])
    left = budget - sum(count_tokens(format_quote(sentence)) + 1 for sentence in pinned)
    rest = [sentence for sentence in (*kept, *new) if sentence not in pinned]
    chosen = {*pinned, *select_sentences(rest, words, rarity, left, filled=True)}
    return [sentence for sentence in (*kept, *new) if sentence in chosen]


MAX_LINES: Final = 400  # of a session that are read, the newest
MAX_SESSIONS: Final = 50  # of a pass, those that were active last
RECENT: Final = timedelta(days=7)  # an older session is not gone on with
_LOCK: Final = "working"
_LOCK_SECONDS: Final = 0.5


class WorkingMemory:
    """Writes the running summaries of a project, in one agent's name."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor
        self._store = actor.store

    @property
    def enabled(self) -> bool:
        """Whether the project keeps working memory."""
        return not self._store.paused and self._store.settings.summaries.working

    def compacted(self, session: str, sender: str | None) -> Fact | None:
        """Write the summary of this agent's session, whose lines go out of the model's sight.

        By rules alone: a host waits.  Returns None where there is nothing to write.

        Raises:
            LedgerError, IndexProblem: it was not written.
        """
        if not self.enabled:
            return None
        session, who = self._actor.mask_name(session) or "", self._actor.mask_name(sender) or ""
        with self._store.exclusive(_LOCK, _LOCK_SECONDS), self._store.session() as reader:
            self._store.refresh(self._actor.agent, wait_ms=100)
            group = reader.overviews.session_group(self._actor.agent, who, session)
            return self._update(group, AT_COMPACTION, None) if group else None

    def run(self, stop: Callable[[], bool] = lambda: False) -> int:
        """Write the summaries of recent sessions with a whole new batch; return how many.

        Raises:
            LedgerError: nothing could be written.
            IndexProblem: the index cannot be read.
        """
        if not self.enabled:
            return 0
        budget = ChatBudget(self._store, self._actor.agent, self._actor.clock)
        model = PassModel(budget, self._store.tokenizer.words, "working")
        written, least = 0, (self._actor.clock() - RECENT).timestamp()
        with self._store.session() as reader:
            self._store.catch_up_all()
            groups = reader.overviews.session_groups(BATCH)[:MAX_SESSIONS]
            for group in groups:
                if stop() or group.last < least:
                    break
                with self._store.exclusive(_LOCK, _LOCK_SECONDS):
                    written += self._update(group, RELATION, model) is not None
        return written

    def _update(self, group: LineGroup, relation: str, model: PassModel | None) -> Fact | None:
        """Write a session's summary in the place of its older one; None if none is due."""
        reader = self._store.reader()
        about = group.agent, group.sender, group.name
        existing = reader.overviews.shelved_facts(SHELF, about)
        covered = group.lines - group.lines % BATCH if relation == RELATION else group.lines
        value = f"{covered} lines"
        same = [fact for fact in existing if fact.value == value and fact.relation == relation]
        shown_later = relation == RELATION and any(
            fact.value == value or fact.value == f"{group.lines} lines" for fact in existing
        )
        if any(f.withdrawn or (f.in_place and f.indexed) for f in same) or shown_later:
            return None
        rows = reader.overviews.group_rows(group, MAX_LINES)
        stored = reader.items_by_row(rows)
        lines = [item for r in rows if r in stored and isinstance(item := stored[r].item, Entry)]
        lines = lines[: len(lines) - (group.lines - covered)]
        fact = self._summarise(group, lines, relation, value, model)
        if fact is None:
            return None
        now, old = self._actor.clock(), tuple(fact.id for fact in existing if fact.in_place)
        self._store.append_facts([fact], now)
        if old:
            event = SupersedeEvent(items=old, by=fact.id, valid_to=to_iso(now))
            self._store.append_events([self._actor.event(event)], shared=True)
        return fact

    def _summarise(
        self,
        group: LineGroup,
        lines: Sequence[Entry],
        relation: str,
        value: str,
        model: PassModel | None,
    ) -> Fact | None:
        """Return the summary of lines; None where no sentence says anything."""
        words = self._store.tokenizer.words
        vocabulary = {word for line in lines for word in words(line.content)}
        overviews = self._store.reader().overviews
        rarity = overviews.word_rarity(group.agent, group.sender, vocabulary)
        quoted = fold_session(lines, words, rarity)
        if not quoted:
            return None
        heading = f"So far ({value}, the purpose first)"
        wide = partial(fold_session, lines, words, rarity, PROMPT_TOKENS)
        worded = model.word(heading, wide, MAX_TOKENS) if model else None
        return (worded or quote_lines(heading, quoted)).to_fact(
            self._actor,
            group,
            lines,
            subject=group.name,
            relation=relation,
            value=value,
            extractor=SHELF,
        )
