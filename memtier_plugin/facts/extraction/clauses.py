"""Find the clauses that state something, leaving out code, questions and conditions.  Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Final

from memtier_plugin.text.dates.annotate import MONTH, RELATIVE

MAX_CLAUSE_CHARS: Final = 400
_LEAD: Final = re.compile(
    r"(?:(?:yeah|yes|yep|yup|yea|no|nope|nah|well|so|also|and|but|oh|ooh|ah|aw+|hey|hi|hello|wow|"
    r"woah|whoa|actually|by the way|btw|fyi|anyway|plus|honestly|thanks(?: so much| a lot)?|thank "
    r"you|sure|okay|ok|haha|lol|for me|as for me|in fact|lately|these days|nowadays|right now|"
    r"currently|at the moment|luckily|unfortunately|sadly|fortunately|thankfully|of course|"
    r"definitely|absolutely|totally|exactly|true|same here|cool|awesome|nice|great|right|omg|hmm+|"
    r"uh|um|then|since then|after that|besides|personally|basically|apparently|overall|anyways|hi "
    r"there|to be honest|not gonna lie|in addition|additionally|recently|ever since)\b[,!:.-]*\s+|"
    r"(?-i:(?!Yesterday|Today|Tonight|Tomorrow)[A-Z][a-z]+)[,!]\s+(?=(?:I|we|my|our)\b)|"
    r"my \w+(?: \w+)?,\s+(?=(?:I|we|you|let['’]s)\b)|[-*•]\s+|"
    r"\d+[.)]\s+)",
    re.IGNORECASE,
)
# A time or a place before the statement that belongs to it: "Last Friday, I went to ..."
_FRONT: Final = re.compile(
    rf"(?P<front>{RELATIVE}|(?:as a|when I was|back in|growing up|during|in (?:(?:high|middle) "
    rf"school"
    r"|college|university|my (?:free|spare|down) ?time|my [\w]+s|\w+ \d{4}|(?:19|20)\d\d)|for "
    r"(?:my|our)|on (?:my|our|weekends|weekdays|\w+days)|at (?:my|our|work|school|home)|after "
    rf"(?:work|school)|around \w+|(?:from|between) (?:{MONTH}|\d)|since (?!then))"
    r"[^,.!?;]{0,50}),? (?=(?:I|we)\b)",
    re.IGNORECASE,
)
CODE_LINE: Final = re.compile(
    r"\s*(?:[>$|<{}#@]|//|\(?\w+\)?[$#] |(?:    |\t)\S|at \S+\(|File \"|Traceback|import "
    r"|def |class |from \S+ import|(?:const|let|var|return|function|public|private|export) )"
    r"|[^\n]*(?:[;{}]|\(\):?|=>)\s*\Z"
)
_SENTENCE: Final = re.compile(r"[^\s.!?](?:[^.!?\n]|[.](?=\S)|[!?](?=[\w]))*[.!?]*")
_CUT: Final = re.compile(
    r"(?:\s?[,;:—–]|\s-)?\s(?:(?:and|but|so|because|since|though|although|which|while|as|cuz|cause|"
    r"['’](?:cause|cuz))\s+){1,4}(?=(?:I|we|my|our|it|he|she|they|you|can|could|would|will|please|how|"
    r"what|that|this|there|things|everything|everyone|life|the \w+ (?:is|are|was|were|has|"
    r"have))\b)|\s?(?:[;—–]|,\s(?=(?:can|could|would|will|do|does|did|is|are|how|what|why|which|"
    r"where|when|should|please|I|we|you|it|he|she|they|that|this|those|thanks|so|but|because|which|"
    r"especially|isn|lol|haha|(?:the|my|their|his|her) \w+(?: \w+)? (?:is|are|was|were))\b)|\s-\s|"
    r"-\s|->|\.\.\.|\[)\s?",
    re.IGNORECASE,
)
_QUESTION: Final = re.compile(
    r"(?:can|could|would|will|do|does|did|is|are|was|were|have|has|how|what|why|which|where|"
    r"who|should|shall|may|any)\b|when\b(?! i )",
    re.IGNORECASE,
)
_STANDING: Final = re.compile(
    r"(?i)(?:from now on|going forward|whenever i|when i ask|every time i|in (?:the )?future)\b"
)
_SUPPOSED: Final = re.compile(r"(?i)(?:if|when(?! i was)|suppose|imagine|say)\b")


def find_clauses(content: str, rejected: Counter[str]) -> Iterator[tuple[int, int, int]]:
    """Yield for each stating clause: its start with what precedes it, its own start, its end."""
    end, fenced = 0, False
    for line in content.splitlines(keepends=True):
        start, end = end, end + len(line)
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
        elif fenced or CODE_LINE.match(line):
            rejected["code"] += 1
        else:
            for sentence in _SENTENCE.finditer(content, start, end):
                yield from _parts(content, *sentence.span(), rejected)


def _parts(
    content: str, start: int, end: int, rejected: Counter[str]
) -> Iterator[tuple[int, int, int]]:
    if _STANDING.match(content, start, end):
        if end - start <= MAX_CLAUSE_CHARS:
            yield start, start, end
        return
    if _SUPPOSED.match(content, start, end):
        rejected["hypothetical"] += 1
        return
    asks = content[start:end].rstrip().endswith("?")
    left = skip_lead(content, start, end)
    front = _FRONT.match(content, left, end)
    begin = left
    if front:
        left = front.end()
    cuts = [(m.start(), m.end()) for m in _CUT.finditer(content, left, end)]
    lefts, rights = [left, *(e for _, e in cuts)], [*(s for s, _ in cuts), end]
    # "..., which I bought in May": the object stands before the clause.
    incomplete = {e for s, e in cuts if re.search(r"(?i)\bwhich\b", content[s:e])}
    for number, (left, right) in enumerate(zip(lefts, rights, strict=True)):
        if left in incomplete:
            continue
        left = skip_lead(content, left, right) if number else left
        if _QUESTION.match(content, left, right) or (asks and right == end):
            rejected["question"] += 1
        elif right - left > MAX_CLAUSE_CHARS:
            rejected["long"] += 1
        elif content[left:right].strip():
            yield left if number else begin, left, right


def skip_lead(content: str, left: int, right: int) -> int:
    """Return where a clause begins after words that only lead to it ("well, actually")."""
    while left < right and (lead := _LEAD.match(content, left, right)):
        left = lead.end()
    return left
