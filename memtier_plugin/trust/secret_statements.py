"""Find passwords and keys stated in prose, and distinguish them from placeholders."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import Any, Final, NamedTuple

from memtier_plugin.trust.secret_formats import DATA, Span, compiled, matches_in_steps

# -- Distinguish secrets from placeholders, references and ordinary words.  Pure

TEMPLATE: Final = re.compile(
    r"[$<{\[%:?@*]|\.{2,}|…|(?i:x{3,}|\*+|_+|-+)\W*\Z"
    r"|(?i:(?:your|the|some|insert|enter)[_\- ]|my[_\- ]?(?:api|key|pass|secret|token)"
    r"|(?:[a-z]+[_\- ])?(?:placeholder|example)|redacted|(?:sk|xoxb)-(?:your|x{3})"
    r"|(?:replace|change)[_\- ]?me\b|!(?:secret|vault|env|ref|sub|include|encrypted)\b"
    r"|(?:vault|ssm|op|file|env|kms|sops|keyring|keychain|secretsmanager|arn|ref):)"
)
REFERENCE: Final = re.compile(
    r"[A-Za-z_]\w*(?:\??\.[A-Za-z_]\w*|::\w+|->\w+)+[();,]*\Z"  # settings.password, $this->token
    r"|[A-Za-z_$][\w.$?!]*[(\[]"  # getenv("X"), os.environ[...], Optional[str]
    r"|[a-z]+_(?:password|pass|token|secret|key)\w{0,3}[);,]*\Z"  # another variable: user_password
    r"|(?:[~.]{0,2}/)[a-z_.-]+(?:/[\w.-]*)*\Z"  # /run/secrets/db
)
# In prose, dotted words are a reference if one of them names its kind.
NAMED_REFERENCE: Final = re.compile(
    r"(?i)(?=[\w.]*(?:pass|pwd|secret|token|key|cred|config|settings|env|self\.|this\.))"
    r"[a-z_]\w*(?:\.[a-z_]\w*)+[();,]*\Z|(?i:[a-z_$][\w.$]*[(\[])"
    r"|(?i:_?[a-z_]*(?:password|passwd|secret|token)_?[a-z]*)\Z|[A-Za-z]+(?:_[A-Za-z]+)+\Z|[(\[^]"
)
_DRAWN: Final = re.compile(r"(?:base64:|\{\w{1,12}\}|0x)?(?P<body>[A-Za-z0-9+/_~.-]{16,}+)={0,2}\Z")
_HEX: Final = re.compile(r"[0-9a-f]+\Z|[0-9A-F]+\Z")
_UUID: Final = re.compile(r"(?i)[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
_LONGEST: Final = 512
_LEAST_CHANGES: Final = (
    0.3  # of small letter, capital, digit: .40 and more where drawn, .05 in words
)
_LONG: Final = 20  # consecutive characters
_DIGIT_BETWEEN: Final = re.compile(r"[^\W\d_]{2}\d+[^\W\d_]{2}")
_HUMP: Final = re.compile(r"[^\W\d_A-Z][A-Z]")
_SYMBOL: Final = re.compile(r"[!#$%&*+=@^~?_](?=\S)|[-./,:;()<>](?=[^\s\d])")
# Algorithms, standards, versions, files: letters with digits that are not secret.
_TERM: Final = re.compile(
    r"(?i)(?:[a-z]{1,6}-?v?\d{1,3}[a-z]{0,3}(?:-[a-z]{2,4}\d{0,3}){0,2}|argon2\w*|base\d\d\w*|\d\w{0,4})\Z"
    r"|[\w.-]*\.(?:txt|md|py|js|ts|json|ya?ml|toml|env|csv|pdf|docx?|xlsx?|html?|sh|conf|cfg|ini|log"
    r"|kdbx|gpg|asc|pem|key|com|org|net|io|dev|de|fr|es|ru|cn|example)\Z"
)


def is_drawn(value: str, *, hexadecimal: bool = True) -> bool:
    """Return whether a value looks random: hex digits, or mixed letters and digits.

    UUIDs do not count, nor do words joined by punctuation.

    Args:
        hexadecimal: count runs of hex digits, which hashes and ids are too.
    """
    match = _DRAWN.match(value[:_LONGEST])
    if match is None or _UUID.match(value):
        return False
    body = match["body"]
    longest = max(re.split("[-_.~]", body), key=len)
    if len(longest) >= 24 and _HEX.match(longest):
        return hexadecimal and not longest.isdigit()
    if not any(map(str.isdigit, body)):
        return False
    classes = ["A" if c.isupper() else "a" if c.islower() else "0" for c in body if c.isalnum()]
    changes = sum(a != b for a, b in pairwise(classes))
    if len({*classes}) < 3 and len(longest) >= _LONG:  # in one case: base32, base36
        return changes >= _LEAST_CHANGES / 3 * len(body)
    return changes >= _LEAST_CHANGES * len(body)


def is_uuid(value: str) -> bool:
    """Return whether a value is a UUID, which is an id or some service's key."""
    return _UUID.match(value) is not None


def is_made_up(value: str) -> bool:
    """Return whether a word in prose can hardly be anything but a password.

    It mixes letters with digits or punctuation, and is no algorithm, version, file or domain.
    """
    if len(value) < 6 or not any(map(str.isalpha, value)) or is_term(value):
        return False
    if any(map(str.isdigit, value)):
        digits = sum(map(str.isdigit, value))
        return digits > 1 or any(p.search(value) for p in (_SYMBOL, _DIGIT_BETWEEN, _HUMP))
    signs = {c for c in value if not c.isalnum()}
    return bool(signs - set("-./,:;'()’|")) or (
        bool(signs & set("-./")) and any(c.isupper() for c in value[1:]) and len(value) >= 8
    )


def is_term(value: str) -> bool:
    """Return whether a value is an algorithm, a version, a file or a domain."""
    return _TERM.match(value) is not None


def is_phrase(value: str, *, most: int = 10) -> bool:
    """Return whether words form a pass phrase: all in lower case, none a function word."""
    # Few texts get here, so the lexicons are not loaded for every text.
    from memtier_plugin.text.lexicon import LANGUAGES, lexicon

    words = value.split()
    return (
        2 < len(words) <= most
        and all(word.isalpha() and word == word.lower() for word in words)
        and not any(
            word in lexicon(language).stop_words for language in LANGUAGES for word in words
        )
    )


# -- Find passwords and keys stated in prose, in ten languages
#
# The words are data (`data/secret-words.json`).  After "the password is", a mix of letters and
# digits is a password; a plain word is one at the end of a clause, unless it describes passwords
# ("expired"); a number is one if the clause ends after it.  Weaker evidence (a change "from X to
# Y", "admin / X", a sentence that mentions a password or a user) needs a value that can hardly be
# anything else.

_CJK: Final = ("chinese", "japanese", "korean")
_FOR: Final = r"(?:[ \t]+(?!(?:{verb})\b)[^\s.:=,;!?]{{1,30}}){{0,5}}?"
_VALUE: Final = (
    r"(?P<quote>[\"'`“”„«»‘’‹]?)[ \t]?(?P<value>(?<=[\"'`“„«‘‹])[^\n\"'`“”„«»‘’›]{1,200}"
    r"|[^\s\"'`“”„«»‘’›]{1,512})"
)
_ASCII_VALUE: Final = r"[\"'`“「『]?(?P<value>[!#-&(-_a-~]{4,512})"
_ENDS: Final = re.compile(
    r"[\"'`”“»’›]?[ \t]*(?:[.,;:!?)\]、。，]|\\?\n|\r|\Z)"
    r"|[\"'`”“»’›]?\s+[(\[-]"
    r"|\s+(?:and|but|or|so|by the way|btw|thanks|please|now|und|aber|bitte|y|pero|et|mais|e|ma|mas"
    r"|en|maar|и|а)\b"
)
_QUANTITY: Final = re.compile(
    r"(?i)\d{1,6}(?:st|nd|rd|th|x|%|[kmgt]?i?b|[hdswy]|ms|min|sec|mm|cm|px|-?(?:bit|byte|char|digit"
    r"|word|hour|day|week|month|year|minute|second|letter|zeichen|stellig|caract|mots|tage|jahre)"
    r"[\w-]*)\Z|\d{4}-\d\d-\d\d\S*\Z|v?\d+(?:\.\d+){1,4}(?:[-+]\w{1,12})?\Z|v\d+\w?\Z"
)
_ENGLISH_NAME: Final = re.compile(r"(?i)(?:password|passphrase|passcode|token)s?\b")
_SIGN_AT_LETTER: Final = re.compile(
    r"[^\W\d_][^\w\s.,/:;()\[\]{}<>'\"-]|[^\w\s.,/:;()\[\]{}<>'\"-][^\W\d_]"
)
_ADDRESS: Final = re.compile(r"\S+@\S+\.\w+\Z|\w+://|[~.]{0,2}/\S*/|\\\\")
_NO_VALUES: Final = (TEMPLATE, NAMED_REFERENCE, _QUANTITY, _ADDRESS)
_KEY_HINTS: Final = frozenset(
    ("key", "seed", "secret", "token", "schlüssel", "clé", "clave", "ключ", "密钥")
)
_KEY_IS: Final = (  # the key of anything is ...
    r"(?<!\bpublic )(?<!\bpub )(?<!publique )(?<![-_\w])"
    r"(?:(?P<secret>secret|token)|key|seed|\w{0,12}schlüssel|clé|clave|ключ|密钥)(?![-_\w])"
    r"(?:[ \t]+(?!hash|digest|sha|md5|id\b)[^\s.:=,;!?]{1,30}){0,6}?"
    r"(?:[ \t]+(?:is|ist|lautet|est|es|это)"
    r"|[ \t]?[:=是]|[ \t]+[—-])"
    r"[ \t]{0,3}[\"'`]?(?P<value>[\w+/=.~-]{16,200})"
)
_WORD: Final = r"[^\s.:=,;!?\"'`]{1,40}"
_TAIL: Final = ").,;:!?\"'`”“»’›]}>*"
_KEYWORD: Final = re.compile(r"[A-Za-z_]\w*=")
_TELLING: Final = re.compile(r"[^\w\s./,:;()'’-]|\d")


_PASSWORD: Final = r"passw(?:or)?ds?|pass ?phrase|pass ?code"
_ASIDE: Final = 100  # characters searched on each side of a name, in its sentence
_SENTENCE_END: Final = re.compile(r"[.!][\s]|[\n。！]")  # a question may be followed by its answer
_TOKEN: Final = re.compile(r"[^\s\"'`“”„«»‘’]{6,64}")
_ASCII_TOKEN: Final = re.compile(r"[!-~]{6,64}")
_STRONG: Final = re.compile(r"(?!\w+#\d+\Z)(?=\D*\d)[^\s#$]*[^\W\d_]{2}[!#$%&*+?^][^\s]*\Z")
_NO_PASSWORD: Final = re.compile(
    r"[-.#]|[0-9a-f]{7,}\Z|[^/@\[\](){}\\=:;,<>|~]*[/@\[\](){}\\=:;,<>|~]"
)


_FLAGS: Final = re.IGNORECASE | re.MULTILINE
_NOTHING: Final = r"(?!)"  # `secret_settings` finds statements in English


class _Language(NamedTuple):
    stated: str  # the source of a pattern: name, verb, value
    loose: str  # a change, or a pair
    around: str  # a name, or an action with a password
    hints: frozenset[str]
    predicates: frozenset[str]
    endings: tuple[str, ...]
    cjk: bool


def find_statements(text: str, hints: set[str]) -> Iterator[Span]:
    """Yield the stated passwords and keys."""
    for language in _languages():
        if not language.hints.isdisjoint(hints):
            yield from _stated(text, language)
            yield from _made_up(text, language)
            yield from _beside(text, language)
    if not _KEY_HINTS.isdisjoint(hints):
        yield from _drawn(text)


def hints_of_statements() -> Iterator[str]:
    """Yield the plain texts by which `find_statements` begins."""
    yield from _KEY_HINTS.union(*(language.hints for language in _languages()))


def _drawn(text: str) -> Iterator[Span]:
    """Yield random-looking values that are called a key, in any language."""
    for match in matches_in_steps(compiled(_KEY_IS, re.IGNORECASE), text):
        value = match["value"].rstrip(_TAIL)
        if is_drawn(value, hexadecimal=bool(match["secret"])):
            yield match.start("value"), match.start("value") + len(value), "secret"


def is_stated(value: str, *, password: bool, quoted: bool, ends: bool) -> bool:
    """Return whether the value after an English "the password is" is the password.

    Args:
        password: the name refers to a password, not a key.
        ends: the clause ends after the value.
    """
    english = _english()
    return _is_value(value, password, quoted, ends, english)


def clause_ends(text: str, at: int) -> bool:
    """Return whether a clause ends at a position."""
    return _ENDS.match(text, at) is not None


def is_predicate(word: str) -> bool:
    """Return whether a word describes secrets ("expired") in some language."""
    word = word.lower()
    return any(
        word in row["predicates"].split() or word.endswith(tuple(row.get("endings", "\0").split()))
        for row in language_rows()
    )


def _stated(text: str, language: _Language) -> Iterator[Span]:
    done = 0
    for match in matches_in_steps(compiled(language.stated, re.IGNORECASE), text):
        start, end = match.span("value")
        if start < done or (match["assigned"] and _ENGLISH_NAME.match(match[0])):
            continue  # `secret_settings` decides
        quoted = not language.cjk and bool(match["quote"])
        if not quoted:
            end = start + len(text[start:end].rstrip(").,;:!?}]>\\*-"))
        password = bool(match["password"])
        ends = language.cjk or _ENDS.match(text, end) is not None
        if _is_value(text[start:end], password, quoted, ends, language):
            done = end
            yield start, end, "password" if password else "secret"


def _made_up(text: str, language: _Language) -> Iterator[Span]:
    """Yield passwords after a change ("from X to Y") or beside a user name ("admin / X")."""
    for match in matches_in_steps(compiled(language.loose, _FLAGS), text):
        default = (match["default"] or "").rstrip(_TAIL)  # a default user such as admin
        if default and _is_made_up(default) and not _NO_PASSWORD.match(default):
            start = match.start("default")
            yield start, start + len(default), "password"
        if match["phrase"] and is_phrase(match["phrase"]):
            yield *match.span("phrase"), "password"
        for group in ("old", "new", "paired"):
            if match[group] and not (group == "new" and match[0][:5].lower() == "pass "):
                start = match.start(group)
                value = match[group].rstrip(_TAIL)
                if (group == "paired" and _is_mixed(value)) or _is_made_up(value):
                    yield start, start + len(value), "password"


def _beside(text: str, language: _Language) -> Iterator[Span]:
    """Yield made-up words from sentences that mention a password or a user.

    With only a user mentioned, a word needs letters, a digit and punctuation.
    """
    read = {True: 0, False: 0}  # how far each was read, beside names of users and of passwords
    for name in matches_in_steps(compiled(language.around, re.IGNORECASE), text):
        user = bool(name["pair"])
        begin, end = max(read[user], name.start() - _ASIDE), min(len(text), name.end() + _ASIDE)
        ends = [mark.end() for mark in _SENTENCE_END.finditer(text, begin, name.start())]
        stop = _SENTENCE_END.search(text, name.end(), end)
        read[user] = stop.end() if stop else end
        tokens = _ASCII_TOKEN if language.cjk else _TOKEN
        for token in tokens.finditer(text, max([begin, *ends]), read[user]):
            value = token[0].strip(_TAIL)
            start = token.start() + token[0].index(value)
            if not (_STRONG.match(value) if user else _TELLING.search(value)):
                continue
            if _NO_PASSWORD.match(value) and (user or not text[name.end() : start].isspace()):
                continue
            if token[0].endswith("]"):  # the id of a recalled line
                continue
            if _is_made_up(value) and not REFERENCE.match(value):
                yield start, start + len(value), "password"


def _is_mixed(value: str) -> bool:
    """Return whether a value mixes letters and digits and is not an address."""
    mixed = any(map(str.isdigit, value)) and any(map(str.isalpha, value))
    return mixed and len(value) >= 6 and not _ADDRESS.match(value)


def _is_made_up(value: str) -> bool:
    return (
        is_made_up(value)
        and not _KEYWORD.match(value)
        and not any(look.match(value) for look in _NO_VALUES)
    )


def _is_value(value: str, password: bool, quoted: bool, ends: bool, language: _Language) -> bool:
    if len(value) < 4 or any(look.match(value) for look in _NO_VALUES):
        return False
    digit, letter = any(map(str.isdigit, value)), any(map(str.isalpha, value))
    if digit and letter:
        return len(value) >= 6 or (password and ends)
    if digit:
        return password and value.isdigit() and (ends or quoted)
    if not password:
        return False
    if " " in value:
        return quoted and len(value) >= 8
    if len(value) >= 6 and _SIGN_AT_LETTER.search(value):
        return True
    if re.fullmatch(r"[^\W\d_]{3,12}(?:(?:[-_.][^\W\d_]{2,12}){2,9}|[_.][^\W\d_]{3,12})", value):
        return ends and not is_term(value)
    word = value.lower()
    if not word.isalpha() or word in language.predicates or len(word) < 5:
        return False
    return quoted or (ends and not word.endswith(language.endings))


@cache
def _words() -> dict[str, Any]:
    words: dict[str, Any] = json.loads((DATA / "secret-words.json").read_text("utf-8"))
    return words


@cache
def language_rows() -> tuple[dict[str, str], ...]:
    """Return the words of each language, English first."""
    return tuple(row for row in _words().values() if isinstance(row, dict) and "predicates" in row)


@cache
def _english() -> _Language:
    row = _words()["english"]
    predicates = frozenset(row["predicates"].split())
    hints, endings = frozenset(row["hints"].split()), tuple(row["endings"].split())
    patterns = _loose(row, row["names"], cjk=False)
    return _Language(_NOTHING, *patterns, hints, predicates, endings, False)


@cache
def _languages() -> tuple[_Language, ...]:
    languages = [_english()]
    for name, row in _words().items():
        if not isinstance(row, dict) or "password" not in row:
            continue
        cjk = name in _CJK
        names = rf"(?:(?P<password>{row['password']})|(?P<key>{row['key']}))"
        if cjk:
            middle = (
                rf"[^\n。.:=!-~]{{0,8}}?[ ]?(?:{row['verb']}|(?P<assigned>[:=]))[ \t:：]{{0,3}}"
            )
            source = names + middle + _ASCII_VALUE
        else:
            stop = r"\b" if name != "russian" else ""
            verb = rf"(?:[ \t]*,?[ \t]+(?:{row['verb']})(?:[ \t]+(?:{row['now']}))?(?![^\W_])"
            verb += r"|[ \t]?(?P<assigned>[:=]))"
            verb += r"[ \t:]{1,3}"
            source = stop + names + _FOR.format(verb=row["verb"]) + verb + _VALUE
        languages.append(
            _Language(
                source,
                *_loose(row, row["password"], cjk=cjk),
                frozenset(row["hints"].split()),
                frozenset(row["predicates"].split()),
                tuple(row.get("endings", "").split()) or ("\0",),
                cjk,
            )
        )
    return tuple(languages)


def _loose(row: dict[str, str], names: str, *, cjk: bool) -> tuple[str, str]:
    """Return the patterns `loose` and `around`."""
    value, gap, space = r"[^\s\"'`“”„«»]{4,200}", rf"(?:[ \t]+{_WORD}){{0,4}}?", r"[ \t]+"
    open_, stop = r"[\"'`“„«]?", r"(?<![\w-])"
    if cjk:
        value, gap, space, stop = r"[!-~]{4,200}", r"[^\n。!-~]{0,8}?", r"[ \t]*", ""
    change = (
        rf"(?:{space}(?:{row['from']}){space}{open_}(?P<old>{value}))?{space}(?:{row['to']}){space}"
    )
    phrase = r"(?P<phrase>[^\W\d_]{3,12}(?: [^\W\d_]{3,12}){2,9})[.]?[ \t]*$"
    source = (
        rf"{stop}(?:{names})(?:{gap}{change}{open_}(?P<new>{value})"
        rf"|{gap}[ \t]?[:：][ \t]*{phrase})"
        rf"|{stop}(?:{row['pair']}){gap}[ \t]*[:：]?{space}{_WORD}(?:[ \t]?[/|]{{1,2}}[ \t]?|:)"
        rf"(?P<paired>{value})"
        rf"|{stop}(?:admin|root)[ \t]?[/|]{{1,2}}[ \t]?(?P<default>{value})"
    )
    stated = row.get("password", _PASSWORD)
    names = rf"{stated}|{row['enter']}|(?P<pair>{row['pair']})"
    around = names if cjk else rf"(?<![A-Za-z0-9_-])(?:{names})(?![A-Za-z0-9_-])"
    return source, around
