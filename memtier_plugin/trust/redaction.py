r"""Replace secrets by ``[redacted:kind]`` before anything is written.

Three kinds of evidence: the formats of well-known services' keys and tokens, structures that
hold a secret (private-key blocks, URLs, headers), and names that announce one (``DB_PASSWORD=``).
A name alone is weak, so its value must also look like a secret: prose, types, placeholders and
references such as ``os.environ["X"]`` stay.

Why not detect-secrets (1.5.0), the library that comes nearest: importing it costs 110 ms and
loads an HTTP client; its API gives secrets without their places; two of its patterns take
quadratic time on hostile text; it has no pattern for sk-proj, sk-ant, github_pat, AIza or hf
keys; its keyword detector takes prose for secrets. The tests hold these patterns against its own.

Every pattern takes linear time: it cannot fail after an unbounded scan that another start repeats.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, NamedTuple

Span = tuple[int, int, str]

_MARKER: Final = re.compile(r"(\[redacted:[a-z0-9-]+\])")


@dataclass(frozen=True, slots=True)
class RedactedText:
    """A text without its secrets, and what kinds of secrets it had, in order, each once."""

    text: str
    kinds: tuple[str, ...] = ()


class _Format(NamedTuple):
    """A secret known by its form; ``hints`` are plain texts, one of which any match contains.

    The secret is the group ``secret``, or the whole match.  Any match holds at least ``shortest``
    characters in a row without white space: prose, which has no such row, need not be looked at.
    """

    kind: str
    hints: tuple[str, ...]
    pattern: re.Pattern[str]
    shortest: int


# A token starts after anything that is not part of one, or after an escape such as \n in JSON.
_START = r"(?:(?<![A-Za-z0-9_-])|(?<=\\[nrt]))"
_PEM_LINE = (
    r"(?:\r?\n|\\[nr])[ \t>|]*(?:[A-Za-z-]+: [^\n]*|[A-Za-z0-9+/=]+)"
    r"(?=[ \t]*(?:[\r\n]|\\[nr]|[\"',]|\Z))"
)


def _format(kind: str, hints: str, pattern: str, shortest: int = 0) -> _Format:
    return _Format(kind, tuple(hints.split()), re.compile(pattern), shortest)


_FORMATS: Final = (
    _format(
        "private-key",
        "PRIVATE Private-Lines:",
        # whole blocks first; a block cut off before its end goes as far as its lines look like one
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
        r"(?:[^-]*+(?:-(?!----)[^-]*+)*+-----END [A-Z0-9 ]{0,60}-----|"
        rf"(?:(?:\s|\\[nr])*+[A-Za-z0-9+/=]{{20,}}+|{_PEM_LINE}|\r?\n(?=\r?\n))*+)"
        rf"|(?<=Private-Lines: )\d+(?:{_PEM_LINE})*+",
    ),
    _format("anthropic-key", "sk-ant-", r"sk-ant-[\w-]{16,}", 23),
    _format(
        "openai-key",
        "sk-",
        rf"{_START}sk-(?:(?:proj|svcacct|admin|None)-[\w-]{{20,}}"
        r"|(?:[a-z0-9]{2,12}-){0,3}[A-Za-z0-9]{20,}[\w-]*|[\w-]{20,200}T3BlbkFJ[\w-]{20,})",
        23,
    ),
    _format(
        "aws-key",
        "A3T ABIA ACCA AKIA ASIA",
        r"(?<![A-Z0-9])(?:A3T[A-Z0-9]|ABIA|ACCA|AKIA|ASIA)[A-Z0-9]{16}(?![A-Z0-9])",
        20,
    ),
    _format(
        "github-token",
        "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_",
        r"gh[pousr]_[A-Za-z0-9_]{36,}|github_pat_\w{22,}",
        33,
    ),
    _format(
        "gitlab-token",
        "gl GR1348941",
        r"gl(?:agent|cbt|dt|ffct|ft|imt|oas|pat|ptt|rt|soat)-[\w.-]{20,}|GR1348941[\w-]{20,}",
        25,
    ),
    _format(
        "slack-token",
        "xox xapp-",
        r"(?i:xox[a-z](?:\.xox[a-z])?|xapp)-(?=[A-Za-z-]{0,40}\d)[A-Za-z0-9-]{10,}",
        15,
    ),
    _format(
        "webhook",
        "hooks.slack.com /api/webhooks/",
        r"(?<=hooks\.slack\.com/)(?:services|workflows|triggers)/[\w/-]{20,}"
        r"|(?<=/api/webhooks/)\d{15,}/[\w-]{40,}",
        29,
    ),
    _format(
        "stripe-key",
        "k_live_ k_test_ whsec_",
        r"[rs]k_(?:live|test)_[A-Za-z0-9]{16,}|whsec_[A-Za-z0-9+/=]{24,}",
        24,
    ),
    _format(
        "google-key",
        "AIza GOCSPX- ya29.",
        r"AIza[\w-]{35}|GOCSPX-[\w-]{20,}|ya29\.[\w-]{20,}",
        25,
    ),
    _format("huggingface-token", "hf_", rf"{_START}hf_[A-Za-z0-9]{{30,}}", 33),
    _format("npm-token", "npm_", rf"{_START}npm_[A-Za-z0-9]{{36,}}", 40),
    _format("npm-token", ":_authToken=", r"(?<=:_authToken=)[\w-]{16,}", 16),
    _format("pypi-token", "pypi-Ag", r"pypi-Ag[\w-]{50,}", 57),
    _format("telegram-token", ":", r"(?<!\d)\d{8,10}:[\w-]{35}(?![\w-])", 44),
    _format("discord-token", ".", rf"{_START}[MNO][\w-]{{23,28}}\.[\w-]{{6}}\.[\w-]{{27,40}}", 59),
    _format("sendgrid-key", "SG.", r"SG\.[\w-]{16,32}\.[\w-]{16,64}", 36),
    _format("twilio-key", "AC SK", rf"{_START}(?:AC|SK)[0-9a-z]{{32}}(?![A-Za-z0-9])", 34),
    _format("mailchimp-key", "-us", r"(?<![0-9a-z])[0-9a-z]{32}-us\d{1,2}(?!\d)", 36),
    _format(
        "azure-key",
        "Account Shared",
        r"(?:Account|Access)Key=(?P<secret>[A-Za-z0-9+/=]{40,})",
        50,
    ),
    _format(
        "service-token",
        "_ - . sq0",
        rf"{_START}(?:(?:dapi|key-)[0-9a-f]{{32}}(?![0-9a-f])|AGE-SECRET-KEY-1[A-Z0-9]{{50,}}"
        r"|(?:dckr_pat|figd|glc|glsa|gsk|lin_api|ntn|pscale_tkn|r8|sbp|secret|shp(?:at|ca|pa|ss)"
        r"|do[opr]_v1)_(?=[a-z_]*[A-Z0-9])[\w-]{30,}|(?:PMAK|NRAK|pplx|tvly|xai)-[\w-]{24,}"
        r"|sq0[a-z]{3}-[\w-]{22,}|hv[bs]\.[\w-]{24,}|AKC[A-Za-z0-9]{60,})",
        28,
    ),
    _format("jwt", "eyJ", rf"{_START}eyJ[\w=-]{{8,}}+\.[\w=-]{{8,}}+(?:\.[\w.+/=-]*+)?", 20),
    _format(
        "url-password",
        "://",
        # a template such as ${PASS} is no secret; the class keeps the starts of two URLs apart
        r"://[^\s:/?#@\"'<>]{0,256}:(?![<{$%*]|(?:pass(?:word)?|pwd|secret|x+)@)"
        r"(?P<secret>[^\s/\"'<>]{1,256})@",
    ),
    _format(
        "authorization",
        "earer EARER",
        r"\b(?:[Bb]earer|BEARER) +(?P<secret>(?=[^\s\"']{0,80}\d)[\w.~+/-]{16,}=*)",
        16,
    ),
    _format(
        "authorization",
        "uthorization UTHORIZATION",
        r"(?i:\bauthorization)\\?[\"']?\s{0,4}[:=]\s{0,4}\\?[\"']?(?i:(?:basic|bearer|bot|token|"
        r"apikey|digest)\s{1,4})(?P<secret>[\w.~+/-]{8,}=*)",
    ),
    _format(
        "password",
        "curl sshpass login",
        r"\bcurl\b[^\n]{0,200}?\s(?:-u|--user)[ =][\"']?[^\s:\"'$]{1,100}:(?P<secret>[^\s\"'$<]+)",
    ),
    _format("password", "sshpass", r"\bsshpass\s+-p\s*[\"']?(?P<secret>[^\s\"'$<]+)"),
    _format("password", "login", r"\blogin\s+\S{1,100}\s+password\s+(?P<secret>[^\s$<]+)"),
)

_LONGEST: Final = max(secret_format.shortest for secret_format in _FORMATS)


@cache
def _formats(longest: int) -> tuple[_Format, ...]:
    """Return the formats of which a text with rows of so many characters can hold one."""
    return tuple(form for form in _FORMATS if form.shortest <= longest)


# Names that announce a secret. What stands before them (DB_, spring.datasource.) does not matter.
_PASSWORD = r"passw(?:or)?ds?|passphrase|passcode|(?<![a-z])pass|(?<![a-z])pwd|passwort"
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
    r"[ \t]{0,8}\**(?:\r?\n[ \t]+(?=[\"']))?|(?i:(?: (?:for|to|of) [^\n.:=]{1,40}?)? is:? )"
    r"|(?<=[Ss])et to |>(?=[^<\s]{1,200}</)|[ \t]{1,4})"
)
_NAMED: Final = re.compile(rf"(?i){_PASSWORD}|{_KEYISH}")
_QUOTED: Final = re.compile(
    r"[bfru@]{0,2}(?P<quote>\\?[\"'`])(?P<value>(?:(?!(?P=quote)).){1,512})"
)
_BARE: Final = re.compile(r"(?P<value>[^\s\"'`]{1,512})")
_REST: Final = re.compile(r"[^\s\"'`]*")
_NEXT_PAIR: Final = re.compile(r"[,;&](?=[\w.-]{1,40}[=:])|</|\\[nrt](?![A-Za-z0-9])")
_LINE_END: Final = re.compile(r"[ \t]*(?:#[^\n]*)?(?:\r?\n|\Z)")

_TEMPLATE: Final = re.compile(
    r"[$<{\[%:?@*]|\.{2,}|…|(?i:x{3,}|\*+|_+|-+)\W*\Z"
    r"|(?i:(?:your|the|some|insert|enter)[_\- ]|my[_\- ]?(?:api|key|pass|secret|token)"
    r"|(?:[a-z]+[_\- ])?(?:placeholder|example)|redacted|(?:sk|xoxb)-(?:your|x{3}))"
)
_REFERENCE: Final = re.compile(
    r"[A-Za-z_]\w*(?:\??\.[A-Za-z_]\w*|::\w+|->\w+)+[();,]*\Z"  # settings.password, $this->token
    r"|[A-Za-z_$][\w.$?!]*[(\[]"  # getenv("X"), os.environ[...], Optional[str]
    r"|[a-z]+_(?:password|pass|token|secret|key)\w{0,3}[);,]*\Z"  # another variable: user_password
    r"|(?:[~.]{0,2}/)[a-z_.-]+(?:/[\w.-]*)*\Z"  # /run/secrets/db
)
_NUMBER: Final = re.compile(r"[\d.,:/%+-]+\Z")
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


class Redactor:
    """Finds secrets in a text and replaces them.

    A find that one of ``allow`` (an exact text, or a regular expression) matches as a whole stays.
    ``extra`` gives further spans of a text (start, end, kind); what it raises is passed on, so that
    nothing is written that a redactor has not seen.
    """

    def __init__(
        self,
        allow: Sequence[str] = (),
        enabled: bool = True,
        extra: Callable[[str], Iterable[Span]] | None = None,
    ) -> None:
        self._enabled = enabled
        self._extra = extra
        self._exact = frozenset(allow)
        self._patterns = tuple(filter(None, map(_compiled, allow)))

    def redact(self, text: str) -> RedactedText:
        """Return the text with every secret replaced; doing it twice is doing it once."""
        kinds: dict[str, None] = {}
        changed = self._enabled
        while changed:
            # Text between markers only ever shrinks, so this ends; nearly always in round two.
            pieces = _MARKER.split(text)
            changed = False
            for index in range(0, len(pieces), 2):
                if secret_spans := [*self._spans(pieces[index])]:
                    changed = True
                    spans = _merged(secret_spans)
                    pieces[index] = _replaced(pieces[index], spans)
                    kinds.update(dict.fromkeys(kind for _, _, kind in spans))
            if changed:
                text = "".join(pieces)
        return RedactedText(text, tuple(kinds))

    def _spans(self, text: str) -> Iterator[Span]:
        if not text:
            return
        for start, end, kind in _found(text):
            if not self._allowed(text[start:end]):
                yield start, end, kind
        for start, end, kind in self._extra(text) if self._extra else ():
            if 0 <= start < end <= len(text) and not self._allowed(text[start:end]):
                yield start, end, re.sub(r"[^a-z0-9]+", "-", kind.lower()).strip("-") or "secret"

    def _allowed(self, secret: str) -> bool:
        return secret in self._exact or any(p.fullmatch(secret) for p in self._patterns)


def _compiled(rule: str) -> re.Pattern[str] | None:
    try:
        return re.compile(rule)
    except re.error:  # an exact text that is no regular expression
        return None


def _found(text: str) -> Iterator[Span]:
    """Yield what the patterns find; the better-known kind of two equal spans comes first."""
    longest = max(map(len, text.split()), default=0)
    for kind, hints, pattern, _ in _formats(min(longest, _LONGEST)):
        for hint in hints:
            if hint in text:
                group = "secret" if "secret" in pattern.groupindex else 0
                for match in pattern.finditer(text):
                    yield *match.span(group), kind
                break
    lower = text.lower()
    if any(hint in lower for hint in ("pass", "pwd", "secret", "token", "key", "credential")):
        yield from _assigned(text)


def _assigned(text: str) -> Iterator[Span]:
    """Yield the values given to names that announce a secret."""
    done = 0
    for name in _NAME.finditer(text):
        if name.start() < done:
            continue
        match = _QUOTED.match(text, name.end()) or _BARE.match(text, name.end())
        if match is None:
            continue
        start, end = match.span("value")
        quoted = match.re is _QUOTED
        if not quoted and (pair := _NEXT_PAIR.search(text, start, end)):
            end = pair.start()
        elif end - start == 512:
            end = _REST.match(text, end).end()  # type: ignore[union-attr]  # matches always
        if not quoted:
            end = start + len(text[start:end].rstrip(").,;:!?}]>\\*"))
        if _is_secret(text[start : min(end, start + 512)], name, quoted, _line(text, name, end)):
            done = end
            yield start, end, "password" if name["password"] else "secret"


def _merged(spans: Iterable[Span]) -> list[Span]:
    """Return disjoint spans in order; of spans that overlap, the first found names the kind."""
    merged: list[tuple[int, int, int, str]] = []
    for start, end, rank, kind in sorted((s, e, rank, k) for rank, (s, e, k) in enumerate(spans)):
        if merged and start < merged[-1][1]:
            old = merged[-1]
            best = min((old[2], old[3]), (rank, kind))
            merged[-1] = (old[0], max(old[1], end), *best)
        else:
            merged.append((start, end, rank, kind))
    return [(start, end, kind) for start, end, _, kind in merged]


def _replaced(text: str, spans: Iterable[Span]) -> str:
    parts, done = [], 0
    for start, end, kind in spans:
        parts += [text[done:start], f"[redacted:{kind}]"]
        done = end
    return "".join([*parts, text[done:]])


def _line(text: str, name: re.Match[str], end: int) -> bool:
    """Tell whether name and value have the line for themselves, as in a configuration file."""
    before = text[max(0, name.start() - 48) : name.start()]
    before = before[max(before.rfind("\n"), before.rfind("\\n")) + 1 :]
    return len(before.split()) < 2 and _LINE_END.match(text, end) is not None


def _is_secret(value: str, name: re.Match[str], quoted: bool, alone: bool) -> bool:
    """Tell whether a value given to a secret's name is one, rather than prose, code or a slot."""
    op = name["op"].strip()
    if len(value) < (4 if op == ":" else 3) or _TEMPLATE.match(value) or _WORDS.match(value):
        return False
    password = bool(name["password"])
    digit = any(c.isdigit() for c in value)
    if _NUMBER.match(value) and (not password or name["name"].lower() == "pass"):
        return False  # a count, a share, a date
    if not op or op.lower().endswith(("is", "is:", "to")):  # prose, or --password VALUE
        if name["flag"] and not op:
            return not _REFERENCE.match(value)
        return bool(op) and digit and len(value) >= 6 and not value[0].isdigit() | value.isdigit()
    if quoted:
        if " " in value:
            return password and (op != ":" or name["name"].lower() == "passphrase")
        return digit or password or (len(value) >= 16 and not value.islower())
    if _REFERENCE.match(value):
        return False
    if _WORD.match(value):  # letters only: a word, a type or a variable, unless the form says more
        if _NAMED.search(value):
            return False
        environment = name["name"].isupper() and "=" in op
        return environment or (password and alone) or (len(value) >= 20 and not value.islower())
    return len(value) >= (4 if alone or op == "=" else 6) and (digit or password)
