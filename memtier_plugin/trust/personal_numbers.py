"""Find numbers of accounts and of persons, by their form and their check digits.  Pure.

They are no secrets to everybody, so they are masked by choice alone (`redaction.personal_numbers`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from memtier_plugin.trust.secret_formats import Span

_IBAN: Final = re.compile(r"\b[A-Z]{2}\d\d(?:[ ]?[A-Z0-9]{4}){2,7}(?:[ ]?[A-Z0-9]{1,3})?\b")
_SSN: Final = re.compile(r"(?<![\w-])(?!000|666|9)\d{3}-(?!00)\d\d-(?!0000)\d{4}(?![\w-])")
_NIR: Final = re.compile(  # France
    r"(?<!\w)[12][ ]?\d\d[ ]?(?:0[1-9]|1[0-2])[ ]?(?:\d\d|2[AB])[ ]?\d{3}[ ]?\d{3}[ ]?\d\d(?!\w)"
)
_DNI: Final = re.compile(r"(?<!\w)[XYZ\d]\d{7}-?[A-HJ-NP-TV-Z](?!\w)")  # Spain
_DNI_LETTERS: Final = "TRWAGMYFPDXBNJZSQVHLCKE"


def find_personal_numbers(text: str) -> Iterator[Span]:
    """Yield IBANs, and the insurance or identity numbers of the US, France and Spain."""
    for match in _IBAN.finditer(text):
        if end := _iban_end(match[0]):
            yield match.start(), match.start() + end, "iban"
    for match in _SSN.finditer(text):
        yield *match.span(), "personal-number"
    for match in _NIR.finditer(text):
        digits = match[0].replace(" ", "").replace("2A", "19").replace("2B", "18")
        if 97 - int(digits[:-2]) % 97 == int(digits[-2:]):
            yield *match.span(), "personal-number"
    for match in _DNI.finditer(text):
        number = match[0][:-1].rstrip("-").translate(str.maketrans("XYZ", "012"))
        if _DNI_LETTERS[int(number) % 23] == match[0][-1]:
            yield *match.span(), "personal-number"


def _iban_end(text: str) -> int:
    """Return how many characters of a text are an IBAN; words in capitals may follow it."""
    while len(plain := text.replace(" ", "")) >= 15:
        if int("".join(str(int(c, 36)) for c in plain[4:] + plain[:4])) % 97 == 1:
            return len(text)
        text = text.rpartition(" ")[0]
    return 0
