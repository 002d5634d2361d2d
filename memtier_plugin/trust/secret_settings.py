"""Find secrets in settings of any syntax, by the name before them and the look of the value."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Final

from memtier_plugin.trust.secret_formats import DATA, Span, matches_in_steps
from memtier_plugin.trust.secret_statements import (
    NAMED_REFERENCE,
    REFERENCE,
    TEMPLATE,
    clause_ends,
    is_drawn,
    is_made_up,
    is_phrase,
    is_stated,
    is_uuid,
)

# -- Find secrets by the names that announce them: ``DB_PASSWORD=``, ``"api_key":``, ``--token``
#
# A name alone is weak, so its value must also look like a secret: prose, types, placeholders and
# references such as ``os.environ["X"]`` stay.

_HINTS: Final = ("pass", "pw", "secret", "token", "key", "credential")

# Names that announce a secret. A prefix (DB_, spring.datasource.) does not matter.
_PASSWORD = (
    r"passw(?:or)?ds?|pass ?phrase|pass ?code|(?<![a-z])pass|(?<![a-z])pwd?(?![a-z])|passwort"
)
_KEYISH = (
    r"secret(?:[_\- ]?(?:access[_-]?)?key(?:_base)?)?|token|credentials?|auth[_-]?key"
    r"|(?:api|access|account|private|encryption|signing|master|license)[_\- ]?key|apikey"
)
_NAME: Final = re.compile(
    r"(?i:(?=[-pstcaeml]))"  # a possible first letter; without this the scan takes twice as long
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
_LONGEST: Final = 512  # characters of a value
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


def find_assigned(text: str, hints: set[str]) -> Iterator[Span]:
    """Yield the values assigned to telling names."""
    if hints.isdisjoint(_HINTS):
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
    """The ends of the runs of characters in a text, each found once however many names it has."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._end = 0
        self._bare = (0, 0)  # an end, and the same end without closing punctuation

    def end(self, at: int) -> int:
        """Return the end of the run at a position; positions only grow."""
        if at > self._end:
            run = _REST.match(self._text, at)
            self._end = run.end() if run else at
        return self._end

    def bare_end(self, end: int) -> int:
        """Return the end of a value without closing punctuation."""
        if self._bare[0] != end:
            bare = end
            while bare and self._text[bare - 1] in _CLOSING:
                bare -= 1
            self._bare = end, bare
        return self._bare[1]


def _line(text: str, name: re.Match[str], end: int) -> bool:
    """Return whether name and value are alone on their line, as in a configuration file."""
    before = text[max(0, name.start() - 48) : name.start()]
    before = before[max(before.rfind("\n"), before.rfind("\\n")) + 1 :]
    return len(before.split()) < 2 and _LINE_END.match(text, end) is not None


def _is_secret(value: str, name: re.Match[str], quoted: bool, alone: bool, ends: bool) -> bool:
    """Return whether the value of a secret's name is a secret, not prose, code or a placeholder."""
    op = name["op"].strip()
    if len(value) < (4 if op == ":" else 3) or TEMPLATE.match(value) or _WORDS.match(value):
        return False
    password = bool(name["password"])
    digit = any(map(str.isdigit, value))
    if _NUMBER.match(value) and (not password or name["name"].lower() == "pass"):
        return False  # a count, a share or a date
    if not op:
        is_argument = bool(name["flag"]) and not NAMED_REFERENCE.match(value)  # --password VALUE
        return is_argument or is_drawn(value, hexadecimal=False)
    if op.lower().endswith(_VERBS):
        prose = is_stated(value, password=password, quoted=quoted, ends=ends)
        return prose and (quoted or not NAMED_REFERENCE.match(value))
    if quoted:
        if " " in value:
            return password and (op != ":" or name["name"].lower() == "passphrase")
        return digit or password or (len(value) >= 16 and not value.islower())
    # XML and shell variables reference others only with a sigil.
    plain = op == ">" or (name["op"] == "=" and name["name"].isupper())
    if (NAMED_REFERENCE if plain and "/" not in value else REFERENCE).match(value):
        return False
    # Letters only: a word, a type or a variable, unless its form says otherwise
    if _WORD.match(value):
        if _NAMED.search(value):
            return False
        environment = name["name"].isupper() and "=" in op
        is_argument = password and (alone or bool(name["flag"]))  # a line of its own, or an option
        return environment or is_argument or (len(value) >= 20 and not value.islower())
    return len(value) >= (4 if alone or op == "=" else 6) and (digit or password)


# -- Find secrets in configuration files, by name, syntax and the look of the value
#
# The search by name above checks the value after a name, in code and prose too.  Here a pair must
# have the form of a setting: then weaker names ("signing", "DEPLOY_KEY") suffice if the value looks
# random, and so do values that could be code elsewhere.

_SETTING_HINTS: Final = (
    "key",
    "auth",
    "pass",
    "pw",
    "psk",
    "sign",
    "salt",
    "seal",
    "token",
    "secret",
    "session",
    "cred",
    "seed",
    "community",
    "dsn",
    "пароль",
    "密码",
)
HINTS: Final = (*_HINTS, *_SETTING_HINTS)  # of both
_PAIR: Final = re.compile(
    r"(?<![\w.$/-])(?P<name>[A-Za-z_][\w.-]{1,79}+)\\?[\"'`]?\]?"
    r"(?:[ \t]{0,8}(?P<op>=>|[?:]{0,3}=(?![=>])|:(?![:/]))[ \t]{0,8}"
    r"|[ \t]{1,4}(?=[\"'])|(?P<comma>[\"'],[ \t]{0,4})(?=[\"']))"
    r"(?:\\?(?P<quote>[\"'`])(?P<quoted>(?:(?!\\?(?P=quote))[^\n]){1,512})"
    r"|(?!\w{2,40}=[^=\s])(?P<bare>[^\s\"'`,;&<>{}]{1,512}))"
)
_LISTED: Final = re.compile(  # name: X, value: Y, as in lists of variables and attributes
    r"(?i)\b(?:name|key|id)[ \t]{0,2}[:=][ \t]{0,2}[\"']?(?P<name>[A-Za-z_][\w.-]{1,79}+)[\"']?,?"
    r"[ \t]{0,8}(?:\r?\n[ \t]{0,40})?[\"']?value[\"']?[ \t]{0,2}[:=][ \t]{0,2}"
    r"(?:(?P<quote>[\"'])(?P<quoted>(?:(?!(?P=quote))[^\n]){1,512})|(?P<bare>[^\s\"'<>{}]{1,512}))"
)
_LINE: Final = re.compile(  # a name and a value on a line, as in many servers' files
    r"(?m)^[ \t]*(?P<name>[a-z_][\w.-]{1,40}+)[ \t]{1,8}(?:\d[ \t]+)?"
    r"(?P<bare>[^\s\"'`,;<>{}:=]{6,512})"
    r"(?:[ \t]+[A-Z]{2})?[ \t]*$"
)
_USER_PAIR: Final = re.compile(r"[a-z]\w{1,30}[/:](?P<password>\S{6,})\Z")
_AROUND: Final = 240  # characters on each side of a pair that show the kind of file
_GIVEN: Final = re.compile(  # setx NAME "value", ENV NAME value
    r"\b(?:setx|set[ \t]+-\w{1,4}|ENV|setenv|secrets?[ \t]+(?:set|add|put))[ \t]+"
    r"(?P<name>[A-Za-z_][\w.-]{1,79}+)[ \t]+"
    r"(?:(?P<quote>[\"'])(?P<quoted>(?:(?!(?P=quote))[^\n]){1,512})|(?P<bare>[^\s\"'<>{}=-]{1,512}))"
)
_SECRET_OBJECT: Final = re.compile(r"(?m)^[ \t\"']*kind[\"']?:[ \t]*[\"']?Secret\b")
_ENTRY: Final = re.compile(
    r"(?m)^(?P<indent>[ \t]*)(?:(?P<block>data|stringData):[ \t]*$"
    r"|(?P<name>[\w.-]{1,253}):[ \t]+[\"']?(?P<value>[^\s\"'#|>][^\s\"']*))"
)
_GLUED: Final = ("passwd", "password", "pw")  # "bindpw"
_PARTS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_CONFIG_LINE: Final = re.compile(
    r"[ \t>|+-]*+(?:(?:export|set|ENV|ARG)[ \t]+)?[\"']?[A-Za-z_][\w.-]*[\"']?[ \t]*(?:=|:)"
    r"[^;{}()\[\]]*[^;,{}()\[\]\s][ \t]*\Z"
    r"|[ \t>-]*+(?:[#;].*|\[[\w. :-]+\]|```\w*|[\w.-]+:)?[ \t]*\Z"
)


def find_settings(text: str, hints: set[str]) -> Iterator[Span]:
    """Yield the values of settings that hold a secret."""
    if "kind" in text and "Secret" in text:
        yield from _secret_object(text)
    if hints.isdisjoint(_SETTING_HINTS):
        return
    for pattern in (_PAIR, _LISTED, _GIVEN, _LINE):
        for match in matches_in_steps(pattern, text):
            kind = name_kind(match["name"])
            if not kind:
                continue
            quoted = match.re is not _LINE and match["quoted"] is not None
            group = "quoted" if quoted else "bare"
            value = match[group].rstrip(".,;)]") if group == "bare" else match[group]
            if _is_held(kind, value, quoted, match, text):
                start = match.start(group)
                yield start, start + len(value), "password" if kind == "password" else "secret"


def name_kind(name: str) -> str:
    """Return what the name of a setting announces: "password", "secret", "key" or ""."""
    known = _name_parts()
    parts = [word.lower() for word in _PARTS.findall(name)]
    while len(parts) > 1 and (parts[-1].isdigit() or parts[-1] in known["after"]):
        parts.pop()
    if not parts or not known["public"].isdisjoint(parts):
        return ""
    if parts[-1] in known["passwords"] or parts[-1].endswith(_GLUED):
        return "password"
    if parts[-1] in known["secrets"] or parts[-2:] in (["secret", "key"], ["access", "key"]):
        return "secret"
    return "key" if parts[-1] in known["keys"] else ""


@cache
def _name_parts() -> dict[str, frozenset[str]]:
    rows: dict[str, str] = json.loads((DATA / "secret-words.json").read_text("utf-8"))["settings"]
    return {kind: frozenset(parts.split()) for kind, parts in rows.items()}


def _is_held(kind: str, value: str, quoted: bool, match: re.Match[str], text: str) -> bool:
    if len(value) < 4 or TEMPLATE.match(value):
        return False
    if is_drawn(value, hexadecimal=len(match["name"]) > len("keys")) or _is_basic(value):
        return True
    if quoted and len(value) >= 24 and " " not in value and len(_classes(value)) == 4:
        return True  # the keys and salts of some frameworks contain punctuation too
    if is_uuid(value):  # some services use UUIDs as keys
        return kind == "secret" or match["name"].isupper()
    if match["name"].lower().endswith("auth") and (pair := _USER_PAIR.match(value)):
        return is_made_up(pair["password"])  # NEO4J_AUTH=neo4j/...
    if kind != "password" or NAMED_REFERENCE.match(value):
        return False
    if " " in value:
        phrase = (match.re is _PAIR and match["op"] == "=") or is_phrase(value)
        return quoted and len(value) <= 64 and (phrase or any(map(_is_mixed, value.split())))
    if quoted or match.re is not _PAIR:
        return is_made_up(value)
    if match["comma"] or match["op"] not in ("=", ":"):
        return False
    if is_made_up(value) and not REFERENCE.match(value):
        return True
    return (is_made_up(value) or (value.isalpha() and len(value) > 5)) and _in_file(text, match)


def _classes(value: str) -> set[str]:
    return {
        "a" if c.islower() else "A" if c.isupper() else "0" if c.isdigit() else "!" for c in value
    }


def _is_mixed(word: str) -> bool:
    return any(map(str.isdigit, word)) and (any(map(str.isalpha, word)) or len(word) > 1)


def _is_basic(value: str) -> bool:
    """Return whether a value is the base64 form of user and password."""
    if len(value) < 12 or len(value) % 4 or not re.fullmatch(r"[A-Za-z0-9+/]+={0,2}", value):
        return False
    try:
        plain = base64.b64decode(value, validate=True).decode("ascii")
    except (binascii.Error, UnicodeDecodeError):
        return False
    return plain.isprintable() and re.fullmatch(r"[^:\s]+:\S{4,}", plain) is not None


def _in_file(text: str, match: re.Match[str]) -> bool:
    """Return whether a pair and the lines around it look like a settings file."""
    before = text[max(0, match.start() - _AROUND) : match.start()].split("\n")
    after = text[match.end() : match.end() + _AROUND].split("\n")
    line = before[-1] + match[0] + after[0]
    around = [near for near in (*before[-3:-1], *after[1:3]) if near.strip()]
    return bool(around) and all(map(_CONFIG_LINE.match, (line, *around)))


def _secret_object(text: str) -> Iterator[Span]:
    """Yield the values of a Kubernetes Secret manifest."""
    for document in re.finditer(r"(?s)(?:\A|^---).*?(?=^---|\Z)", text, re.MULTILINE):
        if not _SECRET_OBJECT.search(document[0]):
            continue
        block: int | None = None
        for entry in _ENTRY.finditer(text, document.start(), document.end()):
            if entry["block"]:
                block = len(entry["indent"])
            elif block is not None and len(entry["indent"]) <= block:
                block = None
            elif block is not None and not TEMPLATE.match(entry["value"]):
                yield *entry.span("value"), "secret"
