"""Who owns a fact, what people are called, and which senders are the same person."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Final, TypeVar

from memtier_plugin.core import plugins
from memtier_plugin.core.errors import NotFound
from memtier_plugin.core.events import LinkPeopleEvent, UnlinkPeopleEvent
from memtier_plugin.core.records import CORRECTED, INTENDED, OWN_WORDS, Entry, Fact, FactDraft
from memtier_plugin.core.settings.schema import FactMode, Facts
from memtier_plugin.core.structs import Record, check_methods
from memtier_plugin.facts.summaries.selection import MIN_PERSON_LINES
from memtier_plugin.retrieval.visibility import linked_groups
from memtier_plugin.storage.readers import Reader
from memtier_plugin.storage.store import Actor
from memtier_plugin.text.lexicon import KINSHIP, Phrases, WordSet, lexicons, words_of
from memtier_plugin.text.tokenizer import normalise
from memtier_plugin.trust.confidences import DOUBTFUL, SENSITIVE, is_sensitive

# -- Decide who owns a fact: a person, or the project.  Pure
#
# The subject decides: statements about the speaker ("I live in Leeds", "my sister ...") belong to
# the speaker, are shown to nobody else on a shared channel and superseded by nobody else's words.
# Statements about things belong to the project, whoever made them, and so do statements for several
# people ("we decided ..."), about what is in somebody's care ("I own the parser"), and rules that
# are not about the speaker ("never push to main").  The same holds for extraction by rules and by a
# model, and for what is remembered.

USER: Final = "user"  # the subject of statements about the user if no sender is named
NAME: Final = "name"  # the relation of a person's name
_TEAM: Final = "The team"
_RULES: Final = frozenset({"always", "never", "asks", "remember", CORRECTED})
_DECIDED: Final = frozenset({"review"})  # keeps its owner
_GROUPS: Final = frozenset({"team", "company"})  # members of the word class of relatives
_WORD: Final = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")
_POSSESSION: Final = re.compile(r"(?P<who>.+?)['’]s (?P<thing>.+)", re.DOTALL)
_PLAIN_ID: Final = re.compile(r"[a-zà-ÿ]+(?:[ ._-][a-zà-ÿ]+)*")
_SEPARATOR: Final = re.compile(r"[ ._-]+")


def assign_person(
    draft: FactDraft, sources: Sequence[Entry], names: Mapping[str, str]
) -> FactDraft:
    """Return a draft with its speaker, who becomes its subject if it is theirs.

    Args:
        sources: the known entries among its sources.
        names: the known names of senders.
    """
    entry = next((entry for entry in sources if entry.role == "user"), None) or next(
        iter(sources), None
    )
    if entry is None or draft.tier == "procedural" or draft.extractor in _DECIDED:
        return draft
    if draft.private_to or draft.person is not None:
        return draft
    sender, name = entry.sender or "", display_name(entry, names)
    subject = _subject_of(draft.subject, entry, name)
    personal = _is_personal(draft, subject, bool(sender))
    if not sender:
        return replace(draft, person="" if personal else None, personal=personal)
    text, several = draft.text, not personal and _speaks_for_several(draft)
    if subject is not None:
        draft = replace(draft, subject=_of_team(subject) if several else subject.format(sender))
    mentioned = subject is not None or personal or _mentions_user(draft.text)
    if draft.extractor != "remember" and mentioned and draft.relation not in OWN_WORDS:
        owned = several and subject != "{}"
        text = _name_speaker(draft, sender if draft.relation == NAME else _TEAM if owned else name)
    as_said = draft.relation in (NAME, *OWN_WORDS)
    if personal and normalise(name)[0] not in normalise(text)[0] and not as_said:
        text = f"{name}: {text}"
    return replace(draft, text=text, person=sender, personal=personal)


def display_name(entry: Entry, names: Mapping[str, str]) -> str:
    """Return the name of an entry's sender in texts; "" if the host names none."""
    if not entry.sender:
        return ""
    return names.get(entry.sender) or entry.speaker or readable_id(entry.sender)


def readable_id(sender: str) -> str:
    """Return a sender's id as a name if it looks like one: "ann" is Ann, "chat:4711" stays."""
    last = sender.rpartition(":")[2]
    if not _PLAIN_ID.fullmatch(last):
        return sender
    return " ".join(part.title() for part in _SEPARATOR.split(last))


def comparable_subject(fact: Fact) -> str:
    """Return a normalised subject, with the user in place of a fact's own person."""
    [subject] = normalise(fact.subject)
    if not fact.personal or not fact.person:
        return subject
    [person] = normalise(fact.person)
    if subject == person:
        return USER
    return f"the {USER}{subject.removeprefix(person)}" if _owns(person, subject) else subject


def subject_for(subject: str, person: str) -> str:
    """Return a comparable subject in the form that a person's facts use, normalised."""
    [name] = normalise(person)
    if not person:
        return subject
    if subject == USER:
        return name
    user_subject = f"the {USER}"
    return (
        f"{name}{subject.removeprefix(user_subject)}" if _owns(user_subject, subject) else subject
    )


def _of_team(subject: str) -> str:
    """Return the subject of a statement for several: the team, or the thing that is theirs."""
    return _TEAM.casefold() if subject == "{}" else subject.removeprefix("{}'s ").format()


def _speaks_for_several(draft: FactDraft) -> bool:
    words = _words(draft.quote or draft.text)
    return _has(words, draft.quote, "plural") and not _has(words, draft.quote, "singular")


def _owns(person: str, subject: str) -> bool:
    return subject.startswith((f"{person}'s ", f"{person}’s "))


def _subject_of(subject: str, entry: Entry, name: str) -> str | None:
    """Return a pattern of the subject if it is the speaker or the speaker's; None if neither."""
    callings = set(normalise(USER, entry.speaker or USER, entry.sender or USER, name or USER))
    callings |= {*_user_nouns(), *words_of("first_person")}
    [calling] = normalise(subject)
    if calling in callings:
        return "{}"
    match = _POSSESSION.fullmatch(subject)
    if match and normalise(match["who"])[0] in callings:
        return f"{{}}'s {match['thing'].replace('{', '{{').replace('}', '}}')}"
    return None


def _is_personal(draft: FactDraft, subject: str | None, named: bool) -> bool:
    """Return whether a draft belongs to its speaker."""
    words = _words(draft.quote or draft.text)
    singular = _has(words, draft.quote, "singular")
    plural = _has(words, draft.quote, "plural")
    if draft.relation == INTENDED:  # whoever is to be reminded
        return True
    related = not words.isdisjoint(KINSHIP - _GROUPS)
    if draft.relation in _RULES and draft.extractor != "remember":
        # A rule of the project, unless it is about how to treat the speaker.
        return singular or not words.isdisjoint(words_of("answering"))
    if draft.relation == "remember":
        return singular and not (plural and not related)
    if subject is None and (
        _is_shared_thing(draft) or not (_mentions_user(draft.text) and (singular or plural))
    ):
        return False
    if plural and not singular:
        return related
    return not (named and not related and _is_in_care(draft.quote or draft.text, words))


def _is_shared_thing(draft: FactDraft) -> bool:
    """Return whether a quote names its subject as generally known: "I moved the standup"."""
    definite = words_of("definite") - words_of("negations")
    before = re.search(rf"(?i)(\w+)\s+{re.escape(draft.subject)}\b", draft.quote)
    return before is not None and before[1].casefold() in definite


def _is_in_care(quote: str, words: WordSet) -> bool:
    """Return whether somebody says that they look after a thing of the project."""
    possessive = words_of("first_possessive") - words_of("first_plural")
    return words.isdisjoint(possessive) and _owning().search(quote) is not None


def _has(words: WordSet, quote: str, number: str) -> bool:
    """Return whether a quote has a first-person pronoun, in the singular or the plural."""
    plural = words_of("first_plural")
    if number == "plural":
        return not words.isdisjoint(plural) or any(word in quote for word in _unspaced(plural))
    singular = (words_of("first_person") | words_of("first_possessive")) - plural
    if not words.isdisjoint(singular):
        return True
    for word in _unspaced(plural):
        quote = quote.replace(word, "")
    return any(word in quote for word in _unspaced(singular))


@cache
def _unspaced(words: WordSet) -> WordSet:
    """Return the words that belong to a language without word separators."""
    return words & frozenset(
        word
        for lexicon in lexicons()
        if lexicon.unspaced
        for word in (*lexicon.first_person, *lexicon.first_possessive, *lexicon.first_plural)
    )


def _words(text: str) -> WordSet:
    """Return the words of a text; a contraction both whole and by its first part."""
    words = {word.replace("’", "'") for word in _WORD.findall(text.casefold())}
    return frozenset(words | {word.partition("'")[0] for word in words})


@cache
def _user_nouns() -> Phrases:
    return tuple(phrase for words in lexicons() for phrase in words.user_nouns)


@cache
def _owning() -> re.Pattern[str]:
    edges = {words: "" if words.unspaced else r"\b" for words in lexicons()}
    phrases = [
        edge + re.escape(phrase).replace(r"\*", r"(?:\S+\ ){0,3}\S+") + edge
        for words, edge in edges.items()
        for phrase in words.owning
    ]
    return re.compile(f"(?i:{'|'.join(phrases)})")


@cache
def _user_pattern() -> re.Pattern[str]:
    spaced = sorted(_user_nouns(), key=len, reverse=True)
    return re.compile(rf"(?i)(?<!\w)(?:{'|'.join(map(re.escape, spaced))})(?![^\W_]*-)")


def _mentions_user(text: str) -> bool:
    return _user_pattern().search(text) is not None


def _name_speaker(draft: FactDraft, name: str) -> str:
    """Return a draft's text with the speaker's name for "the user", unless that is quoted."""
    pattern = _user_pattern()
    if pattern.search(draft.quote):
        first = pattern.match(draft.text)
        return f"{name}{draft.text[first.end() :]}" if first else draft.text
    return pattern.sub(lambda _: name, draft.text)


# -- Which drafts `facts.mode` and `facts.sensitive` accept without a person's decision.  Pure
#
# A person decides by `remember` and by accepting in a review; no model and no extractor does.

Draft = TypeVar("Draft", bound=Fact | FactDraft)


def hold_extracted(draft: Draft, mode: FactMode) -> Draft:
    """Make an extracted draft wait, unless facts are accepted automatically."""
    return draft if mode == "auto" else _hold(draft, mode)


def hold_kept(draft: Draft, facts: Facts) -> Draft:
    """Make a draft that a model asks to keep wait if only a person decides."""
    strictest = replace(facts, sensitive="review") if facts.sensitive == "drop" else facts
    return hold_given(hold_sensitive(draft, strictest) or draft, facts.mode)


def hold_given(draft: Draft, mode: FactMode) -> Draft:
    """Make a draft from a program, an import or a model wait if only a person decides."""
    return _hold(draft, mode) if mode == "explicit" else draft


def hold_sensitive(draft: Draft, facts: Facts) -> Draft | None:
    """Make a sensitive draft wait; return None if such drafts are dropped."""
    if facts.sensitive == "share" or draft.status != "active":
        return draft
    if not is_sensitive(draft.quote or draft.text):
        return draft
    if facts.sensitive == "drop":
        return None
    return replace(draft, status="proposed", reason=SENSITIVE)


def hold_doubtful(draft: FactDraft, entry: Entry) -> FactDraft:
    """Make a draft wait that may be a confidence.

    A rule or an intention is kept for those who know its words: its agent and sender.
    """
    if draft.relation in OWN_WORDS:
        return replace(draft, private_to=(entry.agent_id, entry.sender or ""))
    return _wait(draft, DOUBTFUL)


def _hold(draft: Draft, mode: FactMode) -> Draft:
    return _wait(draft, f"needs your word (facts.mode: {mode})")


def _wait(draft: Draft, reason: str) -> Draft:
    return replace(draft, status="proposed", reason=reason) if draft.status == "active" else draft


# -- The people of a project: their names, and which senders are the same person

THE_USER: Final = "@user"  # refers to the person for whom hosts name no sender


class Person(Record, frozen=True):
    """A sender: their names, linked senders, number of lines and own facts."""

    id: str
    names: tuple[str, ...] = ()
    linked: tuple[str, ...] = ()
    lines: int = 0
    facts: int = 0


@check_methods
class People:
    """The people of one project, for the person at the machine."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor
        self._store = actor.store

    def everybody(self) -> list[Person]:
        """Return everybody who spoke or has stored facts, in the order of their ids."""
        self._store.catch_up_all()
        with self._store.session() as reader:
            counts, names, groups = reader.people(), _all_names(reader), linked_groups(reader)
        ids = {*counts, *names, *(person for group in groups for person in group)}
        return [
            Person(
                person or THE_USER,
                tuple(names.get(person, ())),
                tuple(
                    sorted(
                        other or THE_USER
                        for group in groups
                        if person in group
                        for other in group - {person}
                    )
                ),
                *counts.get(person, (0, 0)),
            )
            for person in sorted(ids)
        ]

    def profiles(self, name: str | None = None) -> list[Any]:
        """Return profiles of the people who spoke often enough, by agent and sender.

        Args:
            name: only people with this name or id; None for all.

        Raises:
            NotFound: nobody with this name spoke often enough.
            SettingsError: memtier-papers is not installed.
        """
        self._store.catch_up_all()
        name = "user" if name == THE_USER else name
        with self._store.session():
            profiles = [*plugins.find_profiles(self._store, name)]
        if name is not None and not profiles:
            raise NotFound(f"nobody called {name!r} has said {MIN_PERSON_LINES} lines yet")
        return profiles

    def link(self, people: Iterable[str]) -> list[str]:
        """Link senders as one person; each of them is then shown the others' facts.

        Args:
            people: ids or names; "" or "@user" is the user if a host names no sender.

        Raises:
            NotFound: one of them is unknown, or a name is ambiguous; nothing is linked.
            LedgerError: it was not written.
        """
        ids = self._ids(people)
        if len(ids) < 2:
            raise NotFound("name two people or more that are one; `memtier people list` shows them")
        self._append(LinkPeopleEvent(people=tuple(ids)))
        return ids

    def unlink(self, people: Iterable[str]) -> list[str]:
        """Separate linked senders again.

        Raises:
            NotFound: one of them is unknown, or a name is ambiguous; nothing is changed.
            LedgerError: it was not written.
        """
        ids = self._ids(people)
        self._append(UnlinkPeopleEvent(people=tuple(ids)))
        return ids

    def _append(self, event: LinkPeopleEvent) -> None:
        self._store.append_events([self._actor.event(event)], shared=True)

    def _ids(self, people: Iterable[str]) -> list[str]:
        everybody = self.everybody()
        return list(dict.fromkeys(_resolve(name, everybody) for name in people))


def stated_names(reader: Reader) -> dict[str, str]:
    """Return the names that senders gave themselves, the newest by sender."""
    return {person: names[0] for person, names in _all_names(reader).items()}


def names_in(
    drafts: Iterable[Fact | FactDraft], sources: Sequence[Sequence[Entry]]
) -> dict[str, str]:
    """Return the names that senders give themselves in these drafts."""
    return {
        entry.sender: draft.value
        for draft, entries in zip(drafts, sources, strict=True)
        if draft.relation == NAME and draft.subject in ("user", *(e.speaker for e in entries))
        for entry in entries
        if entry.sender
    }


def _all_names(reader: Reader) -> dict[str, list[str]]:
    """Return the names that people gave themselves, newest first."""
    names: dict[str, list[str]] = {}
    facts = [s.item for s in reader.facts(relation=NAME, standing="current")]
    for fact in sorted(
        (fact for fact in facts if isinstance(fact, Fact)),
        key=lambda fact: (fact.valid_from or fact.timestamp, fact.id),
    ):
        if fact.personal and fact.subject == (fact.person or "user"):
            names.setdefault(fact.person or "", []).insert(0, fact.value)
    return names


def _resolve(name: str, everybody: Sequence[Person]) -> str:
    """Return the sender with this id, or else this name."""
    name = name or THE_USER
    if name not in [person.id for person in everybody]:
        named = [p.id for p in everybody if normalise(name)[0] in normalise(*p.names)]
        if len(named) != 1:
            count = f"{len(named)} people are" if named else "nobody is"
            raise NotFound(f"{count} called {name!r}; `memtier people list` shows the ids")
        [name] = named
    return "" if name == THE_USER else name
