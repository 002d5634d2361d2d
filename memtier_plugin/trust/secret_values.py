"""Tell secrets from placeholders, references and ordinary words.  Pure."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Final

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
# In prose a dotted row of words is a reference, if one of them says what it refers to.
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
_LONG: Final = 20  # characters in a row
_DIGIT_BETWEEN: Final = re.compile(r"[^\W\d_]{2}\d+[^\W\d_]{2}")
_HUMP: Final = re.compile(r"[^\W\d_A-Z][A-Z]")
_SYMBOL: Final = re.compile(r"[!#$%&*+=@^~?_](?=\S)|[-./,:;()<>](?=[^\s\d])")
# Algorithms, standards, versions, files: what has letters and digits and is no secret.
_TERM: Final = re.compile(
    r"(?i)(?:[a-z]{1,6}-?v?\d{1,3}[a-z]{0,3}(?:-[a-z]{2,4}\d{0,3}){0,2}|argon2\w*|base\d\d\w*|\d\w{0,4})\Z"
    r"|[\w.-]*\.(?:txt|md|py|js|ts|json|ya?ml|toml|env|csv|pdf|docx?|xlsx?|html?|sh|conf|cfg|ini|log"
    r"|kdbx|gpg|asc|pem|key|com|org|net|io|dev|de|fr|es|ru|cn|example)\Z"
)


def is_drawn(value: str, *, hexadecimal: bool = True) -> bool:
    """Return whether a value looks random: hex digits, or letters and digits mixed.

    UUIDs do not count, nor do words joined by signs.

    Args:
        hexadecimal: count rows of hex digits, which hashes and ids are too.
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
    if len({*classes}) < 3 and len(longest) >= _LONG:  # of one case: base32, base36
        return changes >= _LEAST_CHANGES / 3 * len(body)
    return changes >= _LEAST_CHANGES * len(body)


def is_uuid(value: str) -> bool:
    """Return whether a value is a UUID: an id, or a key of some services."""
    return _UUID.match(value) is not None


def is_made_up(value: str) -> bool:
    """Return whether a word in prose can hardly be anything but a password.

    It mixes letters with digits or signs, and is no algorithm, version, file or domain.
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
    """Return whether words make a pass phrase: all in lower case, none a function word."""
    # Few texts have such a row, so the words of languages are not loaded for all.
    from memtier_plugin.text.lexicon import LANGUAGES, lexicon

    words = value.split()
    return (
        2 < len(words) <= most
        and all(word.isalpha() and word == word.lower() for word in words)
        and not any(
            word in lexicon(language).stop_words for language in LANGUAGES for word in words
        )
    )
