"""Read the data files of secret forms and look-alikes, and draw their random parts by seed."""

from __future__ import annotations

import hashlib
import random
import re
import string
from dataclasses import dataclass
from pathlib import Path

DATA = Path(__file__).parent / "data"
BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
ALPHABETS = {
    "alnum": string.ascii_letters + string.digits,
    "lower": string.ascii_lowercase,
    "letter": string.ascii_letters,
    "lowernum": string.ascii_lowercase + string.digits,
    "digit": string.digits,
    "hex": "0123456789abcdef",
    "hexup": "0123456789ABCDEF",
    "base32": "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567",
    "base64": string.ascii_letters + string.digits + "+/",
    "base64url": string.ascii_letters + string.digits + "-_",
    "token": string.ascii_letters + string.digits + "-_",
    "bech32": "qpzry9x8gf2tvdw0s3jn54khce6mua7l",
    "bech32up": "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L",
}
_SLOT = re.compile(r"\{(\w+):(\d+)( ?)\}")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|n|t|\\)")


@dataclass(frozen=True)
class SecretForm:
    """A text and the parts of it that must not reach the disk."""

    group: str
    name: str
    text: str
    secrets: tuple[str, ...]


def secret_forms(seed: int) -> list[SecretForm]:
    """Return every form, its secrets drawn anew for this seed."""
    forms = []
    for line in _lines("secret_forms.txt"):
        group, name, template = line.split(" | ", 2)
        text = _drawn(template, random.Random(f"{seed} {name}"))
        secrets = tuple(re.findall(r"\[\[(.*?)\]\]", text, re.DOTALL))
        forms.append(SecretForm(group, name, text.replace("[[", "").replace("]]", ""), secrets))
    return forms


def look_alikes(seed: int) -> list[str]:
    """Return every text that only looks like a secret."""
    texts = []
    for number, line in enumerate(_lines("look_alikes.txt")):
        texts.append(_drawn(line.split(" | ", 1)[1], random.Random(f"{seed} {number}")))
    return texts


def leaked(secrets: tuple[str, ...], disk: str) -> list[str]:
    """Return the secrets of which a telling part is in a text: ten characters, or all of it."""
    parts = [(secret, part) for secret in secrets for part in re.split(r"[\n\u200b]+|\\n", secret)]
    return [
        secret
        for secret, part in parts
        if part and any(part[at : at + 10] in disk for at in range(0, max(1, len(part) - 9), 5))
    ]


def _lines(name: str) -> list[str]:
    lines = (DATA / name).read_text("utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def _drawn(template: str, rng: random.Random) -> str:
    text = _SLOT.sub(lambda slot: _draw(slot[1], int(slot[2]), slot[3], rng), template)
    escapes = {"n": "\n", "t": "\t", "\\": "\\"}
    return _ESCAPE.sub(lambda e: escapes.get(e[1]) or chr(int(e[1][1:], 16)), text)


def _draw(alphabet: str, count: int, separator: str, rng: random.Random) -> str:
    if alphabet == "card":
        return _card(count, separator, rng)
    if alphabet == "seed":
        return _seed_phrase(count, rng)
    if alphabet == "wif":
        return _wif(rng)
    return "".join(rng.choices(ALPHABETS[alphabet], k=count))


def _card(count: int, separator: str, rng: random.Random) -> str:
    digits = [4, *(rng.randrange(10) for _ in range(count - 2))]
    doubled = [
        d * 2 - 9 * (d > 4) if position % 2 == 0 else d for position, d in enumerate(digits[::-1])
    ]
    number = "".join(map(str, [*digits, -sum(doubled) % 10]))
    return separator.join(number[at : at + 4] for at in range(0, count, 4))


def _seed_phrase(count: int, rng: random.Random) -> str:
    from memtier_plugin.trust.secret_codes import seed_words

    words = sorted(seed_words(), key=str)
    bits = count * 11 - count // 3
    entropy = rng.getrandbits(bits).to_bytes(bits // 8, "big")
    check = hashlib.sha256(entropy).digest()[0] >> (8 - count // 3)
    number = int.from_bytes(entropy, "big") << (count // 3) | check
    return " ".join(words[number >> (11 * index) & 2047] for index in range(count - 1, -1, -1))


def _wif(rng: random.Random) -> str:
    payload = b"\x80" + rng.randbytes(32)
    payload += hashlib.sha256(hashlib.sha256(payload).digest()).digest()[:4]
    number, text = int.from_bytes(payload, "big"), ""
    while number:
        number, digit = divmod(number, 58)
        text = BASE58[digit] + text
    return text
