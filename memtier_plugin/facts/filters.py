"""Filter a session's drafts: drop small talk and dumps, merge duplicates, cap their number.  Pure.

The same filters follow extraction by rules and by a model; rejected drafts are counted by reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from memtier_plugin.core import lazy_regex as regex
from memtier_plugin.core.records import OWN_WORDS, Entry, Fact, FactDraft, Origin
from memtier_plugin.core.settings.schema import Facts
from memtier_plugin.retrieval.duplicates import DENIES
from memtier_plugin.text.lexicon import denials, small_talk, word_set
from memtier_plugin.text.tokenizer import normalise, plain_words

MAX_CHARS: Final = 600  # of one draft's text

_PHRASES: Final = "|".join(map(regex.escape, small_talk()))
_SMALL_TALK: Final = regex.compile(
    rf"""(?xi)(?:(?:\w+|the\ user|the\ assistant)\s+(?:says?|said|greets?|greeted|thanks?|thanked|
    replies|replied|agrees?|agreed|apologi[sz]e[sd]?|laughs?|laughed|congratulate[sd]?)\b[\s:,"']*)?
    (?:(?:hi|hello|hey|thanks|thank\ you|bye|goodbye|good\ morning),?\ \w+|
    {_PHRASES}|howdy|see\ you\ \w+|thanks\ you|ty|you[’]?re\ welcome|welcome|yes|yeah|yep|no|nope|
    lol|haha|sorry|please|i\ see|makes\ sense|will\ do|exactly|indeed|done|
    good\ (?:luck|job|idea|point)|well\ done|congrat\w*|buenos\ días|ciao|grazie|obrigad[oa]|olá|
    привет|спасибо|пока|こんにちは|ありがとう)
    (?:\s+(?:so|very|much|a\ lot|there|again|everyone|all|you|too|then|back|
    for\ (?:the|your|all)\ \w+))?[\s!.,;:)('"~]*"""
)
_GREETED: Final = regex.compile(
    r"(?i)^(?:\w+|the user|the assistant)\s+(?:greets?|greeted|thanks?|thanked|says? (?:hi|hello"
    r"|bye|thanks?|goodbye)|said (?:hi|hello|bye|thanks?|goodbye)|apologi[sz]e[sd]?"
    r"|wish(?:es|ed)? \w+ a (?:good|nice|great))\b[^.]{0,40}\.?$"
)
_ASKED: Final = regex.compile(
    r"""(?xi)\b(?:asks?|asked|asking|inquire[sd]?|inquiring|wonder(?:s|ed|ing)?|curious|
    wants?\ to\ know|wanted\ to\ know|would\ like\ to\ know|requests?|requested|requesting|needs?|
    seeks?|seeking|
    is\ looking\ for|looks?\ for|has\ a\ question)\s+
    (?:(?:the\ assistant|me|him|her|them|for|to|some|any|an?|the|more)\s+)*
    (?:about|whether|if|how|what|why|when|where|who|which|help|advice|information|
    explanations?|clarification|assistance|details?|tips|suggestions?|recommendations?|opinions?)\b"""
)
_QUESTION: Final = regex.compile(r"[?？]\W*$")
_TRACE: Final = regex.compile(
    r"Traceback \(most recent|^\s*at [\w.$<>]+\([\w.]+:\d+\)|File \"[^\"]+\", line \d+"
    r"|\w+(?:Error|Exception): .*\bat\b|0x[0-9a-f]{6,}|Segmentation fault|panicked at"
    r"|\bException in thread\b|goroutine \d+",
    regex.MULTILINE,
)
_SHELL: Final = regex.compile(
    r"(?m)^\s*(?:[$#%>]\s+\S|\w+@[\w.-]+[:~].*[$#]\s|(?:sudo|apt(?:-get)?|pip3?|npm|npx|yarn|brew|git|"
    r"docker|kubectl|curl|wget|ssh|scp|chmod|chown|mkdir|rm|cp|mv|ls|cd|cat|grep|find|tar|make|export"
    r"|source|systemctl|journalctl|ps|kill|python3?|node|cargo|go)\s+(?:-{1,2}\w|[a-z]+\s+-{1,2}\w"
    r"|[./~]\S*|[a-z-]+(?:\s+[\w./:=@~-]+)*\s*$))"
)
_CODE: Final = regex.compile(
    r"```|~~~|[;{}]\s*$|=>|\bdef \w+\(|\bclass \w+[:({]|\bimport \w+(?:\.\w+)*\s*$|\bfrom \w+ "
    r"import\b|\bfunction\s*\w*\(|\b(?:const|let|var) \w+\s*=|\bpublic (?:static|class|void)\b|"
    r"#include\s*<|<\/?\w+(?:\s[^<>]*)?>.*<\/\w+>|\bSELECT\b.+\bFROM\b|\breturn \w+[;(]|"
    r"\w+\(\)\s*[;{]|^\s*[\[{].*[\]}]\s*$|\w+\s*=\s*[\[{(\"'].*",
    regex.MULTILINE,
)
_BLOB: Final = regex.compile(
    r"(?<![/\w.-])(?:[A-Za-z0-9+/]{40,}={0,2}|[0-9a-fA-F]{24,}|(?:[0-9a-fA-F]{2}[:\s]){12,}|"
    r"(?=\S*\d)(?=\S*[a-z])(?=\S*[A-Z])[A-Za-z0-9_-]{40,})(?![/\w.-])"
)
_ID: Final = regex.compile(
    r"(?i)[\W_]*(?:[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}|[0-9A-HJKMNP-TV-Z]{26}|[0-9a-f]{12,}"
    r"|\d{9,}|#?\d+|(?=\S*\d)(?=\S*[a-z])[a-z0-9_-]{16,})[\W_]*"
)
_SYMBOLS: Final = regex.compile(r"[{}\[\]()<>=;|&$\\/*+^~`#@_]")
_VAGUE: Final = word_set("""it this that these those them something anything everything
    nothing stuff thing things yes no
    true false none unknown n/a null nil various several some many one ones here there now then
    es das это это-то eso ça cela quello isso 它 这个 那个 それ これ""")
_ESSENTIAL: Final = regex.compile(
    r"""(?xi)\b(?:allerg\w*|intoleran\w*|anaphyla\w*|celiac|coeliac|diabet\w*|epilep\w*|asthma\w*|vegan\w*|
    vegetarian\w*|halal|kosher|pregnan\w*|medication\w*|must|never|always|not|no|n['’]t|cannot|without|
    avoid\w*|forbid\w*|forbidden|prohibit\w*|refus\w*|only|don['’]?t|require\w*|mandatory|deadline|
    constraint\w*|unless|nie|niemals|nicht|kein\w*|immer|nunca|siempre|jamás|sin|jamais|toujours|pas|
    sans|mai|sempre|senza|não|nooit|altijd|niet|geen|никогда|всегда|не|нельзя)\b|不|没|从不|总是|必须|过敏|禁|ない|ません|必ず"""
)
_ESSENTIAL_RELATIONS: Final = word_set(
    """allergic_to allergy diet never always constraint constraints dislikes remember instruction
    standing_instruction preference prefers requires avoids rule deadline"""
)
_WEAKER: Final[Sequence[Origin]] = ("user", "assistant", "tool", "external", "system")


def apply_filters(
    drafts: Sequence[FactDraft],
    *,
    cap: int,
    single_valued: Collection[str] = Facts().single_valued,
) -> tuple[list[FactDraft], Counter[str]]:
    """Return the accepted drafts of one session, in order, and the reasons of the others.

    Near-duplicates are merged, with the sources of all.  Over the cap, the least confident and
    least specific are dropped first; constraints, allergies, denials and standing instructions
    last.

    Args:
        cap: how many drafts are accepted.
        single_valued: relations in which returning to an old value is a change.
    """
    rejected: Counter[str] = Counter()
    accepted: list[_Comparable] = []
    for draft in drafts:
        if reason := reject_reason(draft):
            rejected[reason] += 1
            continue
        candidate = _Comparable(draft)
        duplicate = _find_duplicate(candidate, accepted, single_valued)
        if duplicate is None:
            accepted.append(candidate)
        else:
            accepted[duplicate] = _Comparable(_merge(accepted[duplicate].draft, draft))
            rejected["duplicate"] += 1
    drafts = [candidate.draft for candidate in accepted]
    # A denial of something nobody said is not a fact: it must not replace one.
    counted = [index for index, draft in enumerate(drafts) if draft.relation != DENIES]
    if len(counted) <= cap:
        return drafts, rejected
    rejected["cap"] = len(counted) - max(0, cap)
    worst_first = sorted(counted, key=lambda index: (_cap_rank(drafts[index]), index), reverse=True)
    dropped = {*worst_first[: rejected["cap"]]}
    return [draft for index, draft in enumerate(drafts) if index not in dropped], rejected


def reject_reason(draft: FactDraft) -> str:
    """Return why a draft is not worth keeping, or an empty string."""
    text, value = draft.text.strip(), draft.value.strip()
    if len(text) > MAX_CHARS or len(value) > MAX_CHARS:  # checked before any pattern reads them
        return "too long"
    if is_small_talk(text) or (is_small_talk(value) and draft.relation != "name"):
        return "small talk"
    is_own_words = draft.relation in OWN_WORDS  # "ask me how it went" asks nothing now
    if _QUESTION.search(value) or (not is_own_words and is_question(text)):
        return "question"
    is_procedure = draft.tier == "procedural" or is_own_words
    if is_code_or_dump(text, procedure=is_procedure) or is_code_or_dump(value, procedure=True):
        return "code or dump"
    if _ID.fullmatch(text) or (_BLOB.search(text) and _mostly_blob(text)):
        return "only an id"
    words = plain_words(value)
    if not words or all(word in _VAGUE for word in words) or len(plain_words(text)) < 2:
        return "no information"
    return ""


def is_small_talk(text: str) -> bool:
    """Return whether a text only greets, thanks, agrees or fills."""
    return bool(_SMALL_TALK.fullmatch(text.strip()) or _GREETED.match(text.strip()))


def is_question(text: str) -> bool:
    """Return whether a text is a question, or only reports one."""
    return bool(_QUESTION.search(text) or _ASKED.search(text))


def is_code_or_dump(text: str, *, procedure: bool = False) -> bool:
    """Return whether a text is code, a command line, a trace or data rather than a sentence.

    Args:
        procedure: it may name commands, as in a how-to.
    """
    if _TRACE.search(text) or (_BLOB.search(text) and _mostly_blob(text)):
        return True
    symbols = len(_SYMBOLS.findall(text))
    if symbols > 8 and 5 * symbols > len(text):
        return True
    if text.count("\n") >= 3 and (_CODE.search(text) or _SHELL.search(text)):
        return True
    if procedure:
        return False
    sentence = bool(regex.match(r"\s*\p{Lu}?[\p{L}'’]+ \p{L}", text)) and text.rstrip().endswith(
        (".", "!", "。")
    )
    if sentence and symbols <= 6:
        return False
    return bool(_CODE.search(text) or _SHELL.search(text))


def _mostly_blob(text: str) -> bool:
    return 2 * sum(len(match[0]) for match in _BLOB.finditer(text)) > len(text)


@dataclass(frozen=True)
class _Comparable:
    """A draft in the normalised forms used to find duplicates."""

    draft: FactDraft

    @cached_property
    def normal(self) -> tuple[str, ...]:
        """Subject, relation and value."""
        draft = self.draft
        return normalise(draft.subject, draft.relation, draft.value)

    @property
    def slot(self) -> tuple[str, ...]:
        """Subject and relation."""
        return self.normal[:2]

    @property
    def audience(self) -> tuple[object, ...]:
        draft = self.draft  # a retraction never equals a new fact
        lane = draft.relation if draft.relation in (DENIES, *OWN_WORDS) else ""
        return draft.tier, draft.private_to, draft.person, lane

    @cached_property
    def denies(self) -> bool:
        return any(word in denials() for word in plain_words(self.draft.text))

    @cached_property
    def words(self) -> dict[str, str]:
        return _words(self.draft.text)

    @cached_property
    def value_words(self) -> set[str]:
        return set(_words(self.draft.value))


def _find_duplicate(
    draft: _Comparable, accepted: Sequence[_Comparable], single_valued: Collection[str]
) -> int | None:
    """Return the index of the accepted draft that says the same, if one does."""
    is_single = draft.draft.relation in single_valued
    changed = False
    for index in range(len(accepted) - 1, -1, -1):
        other = accepted[index]
        if other.audience != draft.audience:
            continue
        same_slot = other.slot == draft.slot
        if other.normal == draft.normal and other.denies == draft.denies:
            return None if changed else index
        if _near_duplicates(draft, other):
            return None if changed and same_slot else index
        changed = changed or (is_single and same_slot)
    return None


def _near_duplicates(draft: _Comparable, other: _Comparable) -> bool:
    """Return whether two texts share nine of ten words, and differ in no name, number or denial.

    The words of each value must occur in the other's text.
    """
    if draft.normal[0] != other.normal[0]:
        return False
    differing = draft.words.keys() ^ other.words.keys()
    if 10 * len(differing) > len(draft.words.keys() | other.words.keys()):
        return False
    if not (draft.value_words <= other.words.keys() and other.value_words <= draft.words.keys()):
        return False
    return not any(
        word in denials() or any(map(str.isdigit, word)) or word[0].isupper()
        for word in (draft.words.get(word) or other.words[word] for word in differing)
    )


def _words(text: str) -> dict[str, str]:
    """Return the casefolded words of a text, each with its original spelling."""
    words = regex.findall(r"[\p{L}\p{M}\p{N}]+", text)
    return {word.casefold(): word for word in words}


def _merge(draft: FactDraft, other: FactDraft) -> FactDraft:
    """Return the better of two drafts that say the same, with the sources of both.

    A draft that waits for review lends no sources to one that does not.
    """
    first, second = sorted((draft, other), key=lambda d: (d.status != "active", d is other))
    if first.status != second.status:
        return first
    better = first if first.confidence >= second.confidence else second
    weakest = max(first.origin, second.origin, key=_WEAKER.index)
    sources = dict.fromkeys([*better.sources, *first.sources, *second.sources])
    since = min((d.valid_from for d in (first, second) if d.valid_from), default=None)
    return replace(better, sources=tuple(sources), origin=weakest, valid_from=since)


def is_essential(item: FactDraft | Fact | Entry) -> bool:
    """Return whether it states a constraint, an allergy, a denial or a standing instruction."""
    listed = not isinstance(item, Entry) and item.relation in _ESSENTIAL_RELATIONS
    return listed or bool(_ESSENTIAL.search(item.text))


def _cap_rank(draft: FactDraft) -> tuple[bool, bool, float, int]:
    """Return the key for dropping drafts over the cap, largest first."""
    return (
        not is_essential(draft),
        draft.status != "active",
        -draft.confidence,
        -len(set(plain_words(draft.value))),
    )
