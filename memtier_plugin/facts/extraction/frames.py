"""Find the sentences of a message that its writer says in earnest and of their own.  Pure.

Left out are code and quotations, forwarded mail and transcripts, texts to be worked on, examples,
and what is to be imagined, played or invented.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Final, Literal

from memtier_plugin.core import lazy_regex as regex
from memtier_plugin.retrieval.pasted_text import pasted_spans
from memtier_plugin.retrieval.prompt_words import likeliest_language, split_words
from memtier_plugin.text.languages import iter_sentence_spans
from memtier_plugin.text.lexicon import LANGUAGES, lexicon
from memtier_plugin.text.phrases import Words

MAX_SENTENCE: Final = 400  # characters
_MAX_SENTENCES: Final = 120  # of a message that are looked at
_LANGUAGE_WORDS: Final = 40  # by which the language of a sentence is recognised
_LEAD: Final = re.compile(
    r"(?:and|but|so|also|plus)\s+|"
    r"(?:(?:yeah|yes|yep|yup|yea|no|nope|nah|well|so|also|and|but|oh|ooh|ah|aw+|hey|hi|hello|wow|"
    r"woah|whoa|actually|by the way|btw|fyi|anyway|plus|honestly|thanks(?: so much| a lot)?|thank "
    r"you|sure|okay|ok|haha|lol|for me|as for me|in fact|lately|these days|nowadays|right now|"
    r"currently|at the moment|luckily|unfortunately|sadly|fortunately|thankfully|of course|"
    r"definitely|absolutely|totally|exactly|true|same here|cool|awesome|nice|great|right|omg|hmm+|"
    r"uh|um|then|since then|after that|besides|personally|basically|apparently|overall|anyways|hi "
    r"there|to be honest|not gonna lie|in addition|additionally|recently|ever since)\b(?:"
    r"[,!:.-]+\s+|"
    r"\s+(?=(?:I|we|my|our|the|a|in|on|please|never|always|don|do)\b|I['’]))|"
    r"(?-i:(?!Yesterday|Today|Tonight|Tomorrow)[A-Z][a-z]+)[,!]\s+(?=(?:I|we|my|our)\b)"
    r"(?!(?:my|our)(?:\s+\w+){1,3},)|"  # "Zoe, my aunt, ..." says who she is
    r"my \w+(?: \w+)?,\s+(?=(?:I|we|you|let['’]s)\b)|[-*•]\s+|"
    r"\d+[.)]\s+)",
    re.IGNORECASE,
)
CODE_LINE: Final = re.compile(
    r"\s*(?:[>$|<{}#@]|//|\(?\w+\)?[$#] |(?:    |\t)\S|at \S+\(|File \"|Traceback|import "
    r"|def |class |from \S+ import|(?:const|let|var|return|function|public|private|export) )"
    r"|[^\n]*(?:[;{}]|\(\):?|=>)\s*\Z"
)
# A name and what it says, or the entry of a form: several of them are nobody's sentences.
_TURN: Final = regex.compile(
    r"(?m)^[ \t]*(?:\[?\d{1,2}[:.]\d\d[^\]\n]{0,12}\]?[ \t]*)?(?P<who><?\p{Lu}[\w.-]+(?: "
    r"\p{Lu}[\w.-]+)?>?)"
    r"(?: \([^)\n]{1,20}\))?[:：][ \t]+\S[^\n]*"
)
_QUOTED: Final = regex.compile(
    r"\"[^\"\n]+\"|“[^“”\n]+”|«[^«»\n]+»|„[^„“”\n]+[“”]|「[^「」\n]+」|『[^『』\n]+』"
)
_QUOTE_OPENS: Final = regex.compile(r"[:：]\s*[\"“«„「『]")
_MOST: Final = 0.5  # of a sentence's characters that are quoted
_COLON: Final = regex.compile(r"[:：]\s")
_CLAUSE: Final = regex.compile(r"[;,:：；，]\s*|\s[-–—]\s")
_LIST_MARK: Final = regex.compile(
    r"\s*(?:[-*•●○▪‣·]\s+|\d{1,2}[.)]\s+)?(?:\*\*[^*\n]{1,40}:\*\*\s+|\*\*[^*\n]{1,40}\*\*:\s+)?"
)
# What somebody is quoted to say in several sentences, and what is played: "[She nods.]".
_SPEECH: Final = regex.compile(
    r"“[^“”\n]*?[.!?…]\s[^“”\n]*”|(?<!\S)\"[^\"\n]*?[.!?…]\s[^\"\n]*\"|(?<!\S)\[[^\[\]\n]{12,}\]|"
    r"(?<!\S)\([^()\n]{8,}\)(?=\s|$)"
)
_UNFINISHED: Final = regex.compile(r"[\p{L}\p{N},]\s*\Z")
_GOES_ON: Final = regex.compile(r"\s*\p{Ll}")
Scope = Literal["", "sentence", "rest", "message"]  # how far something is not said in earnest


@dataclass(frozen=True, slots=True)
class Asserted:
    """A sentence that is meant, without its list mark, and where it stands."""

    start: int
    end: int
    words: Words


def find_asserted(content: str) -> list[Asserted]:
    """Return the sentences that the writer of a message says in earnest, questions among them."""
    pasted = _pasted(content)
    sentences: list[Asserted] = []
    for start, end in islice(_prose(content, pasted), _MAX_SENTENCES):
        words = read_words(content[start:end])
        match _unasserted(words):
            case "message":
                return []
            case "rest":
                return sentences
            case "sentence":
                continue
        sentences.append(Asserted(start, end, words))
    return sentences


def read_words(sentence: str) -> Words:
    """Return a sentence as the words of its language."""
    head = sentence[:MAX_SENTENCE]
    units = split_words(head)[:_LANGUAGE_WORDS]
    return Words.of(sentence, likeliest_language(head, units, _known_languages()))


@cache
def _known_languages() -> frozenset[str]:
    """Return the languages whose statements are read."""
    return frozenset(name for name in LANGUAGES if lexicon(name).definite)


def _pasted(content: str) -> bytearray:
    """Return which characters were pasted or are somebody's speech: nobody's own words."""
    pasted = bytearray(len(content))
    turns = [*_TURN.finditer(content)]
    several = len({turn["who"] for turn in turns}) > 1
    speeches = (*(turns if several else ()), *_SPEECH.finditer(content))
    for start, end in (*pasted_spans(content), *(speech.span() for speech in speeches)):
        pasted[start:end] = b"\1" * (end - start)
    return pasted


def _prose(content: str, pasted: bytearray) -> Iterator[tuple[int, int]]:
    """Yield the sentences in lines that are neither code nor pasted."""
    end, fenced = 0, False
    unfinished = False
    for line in content.splitlines(keepends=True):
        start, end = end, end + len(line)
        goes_on = unfinished and _GOES_ON.match(line) is not None
        unfinished = _UNFINISHED.search(line) is not None
        ends_below = unfinished and _GOES_ON.match(content, end) is not None
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
        elif not (fenced or CODE_LINE.match(line)):
            for left, right in iter_sentence_spans(line):
                left, right = start + left, start + right
                at_front = not content[start:left].strip()
                at_end = not content[right:end].strip()
                if (goes_on and at_front) or (ends_below and at_end):
                    continue  # a part of a sentence that a line break divides
                left += _mark_size(content[left:right])
                right = left + len(content[left:right].rstrip())
                if left < right and not any(pasted[left:right]):
                    yield left, right


def _mark_size(sentence: str) -> int:
    mark = _LIST_MARK.match(sentence)
    return mark.end() if mark else 0


def _unasserted(words: Words) -> Scope:
    """Return how far what a sentence begins is not said in earnest."""
    text = words.text
    introduces = _COLON.search(text) or text.rstrip().endswith((":", "："))
    if _invents(words):
        return "message"
    if words.opens("fiction_openers") is not None:
        first = words.words[0] if words.words else ""
        alone = first in lexicon(words.language).conditionals or text.endswith(("?", "？"))
        return "sentence" if alone else "rest"
    if _opens_task(words) or words.opens("source_openers") is not None or words.has("sample_cues"):
        return "rest" if introduces else "sentence"
    if _QUOTE_OPENS.search(text):
        return "rest"
    quoted = sum(len(match[0]) for match in _QUOTED.finditer(text))
    return "sentence" if quoted > _MOST * len(text) else ""


def _opens_task(words: Words) -> bool:
    """Return whether a sentence asks for a piece of work, not for a rule to be kept."""
    if words.opens("rule_openers") is not None or words.opens("order_openers") is not None:
        return False
    after = words.opens("politeness")
    clause = words if after is None else Words.of(words.text[after:].lstrip(" ,，"), words.language)
    if clause.opens("rule_openers") is not None or clause.opens("keep_cues") is not None:
        return False
    return clause.opens("task_verbs") is not None and not words.has("keep_cues")


def _invents(words: Words) -> bool:
    """Return whether a clause of a sentence asks to invent, or to go on with, a story."""
    if not words.has_word("fiction_nouns"):
        return False
    makers = lexicon(words.language).making_verbs
    if words.unspaced:
        return any(verb in words.text for verb in makers)
    starts = {0, *(clause.end() for clause in _CLAUSE.finditer(words.text))}
    polite = words.opens("politeness")
    if polite is not None:
        starts.add(polite + 1)
    return any(token.text in makers and token.start in starts for token in words.tokens)


def skip_lead(content: str, left: int, right: int) -> int:
    """Return where a clause begins after words that only lead to it ("well, actually")."""
    while left < right and (lead := _LEAD.match(content, left, right)):
        left = lead.end()
    return left
