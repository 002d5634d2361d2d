"""Find secrets by the names that announce them: ``DB_PASSWORD=``, ``"api_key":``, ``--token``.

A name alone is weak, so its value must also look like a secret: prose, types, placeholders and
references such as ``os.environ["X"]`` stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from memtier_plugin.trust.secret_formats import Span
from memtier_plugin.trust.secret_statements import clause_ends, is_stated
from memtier_plugin.trust.secret_values import NAMED_REFERENCE, REFERENCE, TEMPLATE, is_drawn
from memtier_plugin.trust.text_views import matches_in_steps

_HINTS: Final = ("pass", "pw", "secret", "token", "key", "credential")

# Names that announce a secret. What stands before them (DB_, spring.datasource.) does not matter.
_PASSWORD = (
    r"passw(?:or)?ds?|pass ?phrase|pass ?code|(?<![a-z])pass|(?<![a-z])pwd?(?![a-z])|passwort"
)
_KEYISH = (
    r"secret(?:[_\- ]?(?:access[_-]?)?key(?:_base)?)?|token|credentials?|auth[_-]?key"
    r"|(?:api|access|account|private|encryption|signing|master|license)[_\- ]?key|apikey"
)
_NAME: Final = re.compile(
    r"(?i:(?=[-pstcaeml]))"  # any first letter: without it the scan takes twice as long
    rf"(?i:(?P<flag>--[a-z0-9-]{{0,30}})?(?P<name>(?P<password>{_PASSWORD})|{_KEYISH}))"
    r"(?P<close>\\?[\"'`]?\]?\**)"
    r"(?P<op>[ \t]{0,8}"
    r"(?::[ \t]?[A-Za-z_.]{1,20}(?:[ \t]?\|[ \t]?None)?[ \t]?=|:=|=>|={1,3}|:(?!:))"
    r"[ \t]{0,8}\**(?:\r?\n[ \t]+(?=[\"']))?|(?i:(?: (?:for|to|of|on) [^\n.:=]{1,40}?)?"
    r" (?:is|was|is now|will be):?(?: |\r?\n)|['’]s |(?<=['’])s )"
    r"|(?<=[Ss])et to |>(?=[^<\s]{1,200}</)|[ \t]{1,4})"
)
_NAMED: Final = re.compile(rf"(?i){_PASSWORD}|{_KEYISH}")
_QUOTED: Final = re.compile(
    r"[bfru@]{0,2}(?P<quote>\\?[\"'`])(?P<value>(?:(?!(?P=quote)).){1,512})"
)
_BARE: Final = re.compile(r"(?P<value>[^\s\"'`]{1,512})")
_LONGEST: Final = 512  # characters of a value that are looked at
_CLOSING: Final = frozenset(").,;:!?}]>\\*")
_REST: Final = re.compile(r"[^\s\"'`]*")
_NEXT_PAIR: Final = re.compile(r"[,;&](?=[\w.-]{1,40}[=:])|</|\\[nrt](?![A-Za-z0-9])")
_LINE_END: Final = re.compile(r"[ \t]*(?:#|\r?\n|\Z)")

_NUMBER: Final = re.compile(r"[\d.,:/%+-]+\Z")
_VERBS: Final = ("is", "is:", "was", "was:", "now", "now:", "be", "be:", "to", "s", "'s", "’s")
_WORD: Final = re.compile(r"[A-Za-z_-]+\Z")
_WORDS: Final = re.compile(
    r"(?:string|str|text|bytes|char|varchar|integer|int|bool|boolean|any|object|none|null|nil"
    r"|undefined|true|false|yes|no|on|off|empty|required|optional|hidden|missing|invalid|incorrect"
    r"|wrong|expired|changed|reset|protected|encrypted|hashed|secure|strong|weak|unknown|rotated"
    r"|revoked|await|new|this|self|env|input|prompt|flag|option|argument|parameter|value|field"
    r"|file|stdin|and|or|is|are|was|the|to|for|in|of|with|from|must|should|can|will|has|may|not|as"
    r"|an?|that|which|when|if|its?|your|my|our|password|passwd|token|secret|key|credentials"
    r"|changeme|inherit)[-_]*\Z",
    re.IGNORECASE,
)


def find_assigned(text: str, lower: str) -> Iterator[Span]:
    """Yield the values assigned to telling names; ``lower`` is the text in lower case."""
    if not any(hint in lower for hint in _HINTS):
        return
    done, runs = 0, _Runs(text)
    for name in matches_in_steps(_NAME, text):
        if name.start() < done:
            continue
        match = _QUOTED.match(text, name.end()) or _BARE.match(text, name.end())
        if match is None:
            continue
        start, end = match.span("value")
        quoted = match.re is _QUOTED
        if not quoted and (pair := _NEXT_PAIR.search(text, start, end)):
            end = pair.start()
        elif end - start == _LONGEST:
            end = runs.end(end)
        if not quoted:
            end = max(start, runs.bare_end(end))
        alone, ends = _line(text, name, end), clause_ends(text, end)
        if _is_secret(text[start : min(end, start + _LONGEST)], name, quoted, alone, ends):
            done = end
            yield start, end, "password" if name["password"] else "secret"


class _Runs:
    """Ends of the runs of characters in a text, each read once however many names it has."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._end = 0
        self._bare = (0, 0)  # an end, and the same without closing signs

    def end(self, at: int) -> int:
        """Return the end of the run at a position; positions only grow."""
        if at > self._end:
            rest = _REST.match(self._text, at)
            self._end = rest.end() if rest else at
        return self._end

    def bare_end(self, end: int) -> int:
        """Return the end of a value without closing signs."""
        if self._bare[0] != end:
            bare = end
            while bare and self._text[bare - 1] in _CLOSING:
                bare -= 1
            self._bare = end, bare
        return self._bare[1]


def _line(text: str, name: re.Match[str], end: int) -> bool:
    """Return whether name and value have the line for themselves, as in a configuration file."""
    before = text[max(0, name.start() - 48) : name.start()]
    before = before[max(before.rfind("\n"), before.rfind("\\n")) + 1 :]
    return len(before.split()) < 2 and _LINE_END.match(text, end) is not None


def _is_secret(value: str, name: re.Match[str], quoted: bool, alone: bool, ends: bool) -> bool:
    """Return whether a value given to a secret's name is one, rather than prose, code or a slot."""
    op = name["op"].strip()
    if len(value) < (4 if op == ":" else 3) or TEMPLATE.match(value) or _WORDS.match(value):
        return False
    password = bool(name["password"])
    digit = any(map(str.isdigit, value))
    if _NUMBER.match(value) and (not password or name["name"].lower() == "pass"):
        return False  # a count, a share, a date
    if not op:
        given = bool(name["flag"]) and not NAMED_REFERENCE.match(value)  # --password VALUE
        return given or is_drawn(value, hexadecimal=False)
    if op.lower().endswith(_VERBS):
        prose = is_stated(value, password=password, quoted=quoted, ends=ends)
        return prose and (quoted or not NAMED_REFERENCE.match(value))
    if quoted:
        if " " in value:
            return password and (op != ":" or name["name"].lower() == "passphrase")
        return digit or password or (len(value) >= 16 and not value.islower())
    # XML and a shell's variables name no others without a sign.
    plain = op == ">" or (name["op"] == "=" and name["name"].isupper())
    if (NAMED_REFERENCE if plain and "/" not in value else REFERENCE).match(value):
        return False
    if _WORD.match(value):  # letters only: a word, a type or a variable, unless the form says more
        if _NAMED.search(value):
            return False
        environment = name["name"].isupper() and "=" in op
        given = password and (alone or bool(name["flag"]))  # a line, or an option, of its own
        return environment or given or (len(value) >= 20 and not value.islower())
    return len(value) >= (4 if alone or op == "=" else 6) and (digit or password)
