"""Make the word list of `memtier bench scale`: how often each word stands in WordNet's prose.

    apt-get download wordnet-base && dpkg -x wordnet-base_*.deb WORDNET
    python scripts/make_word_list.py WORDNET/usr/share/wordnet bench/memtier_bench/words

Counted are the words of all definitions and example sentences of WordNet 3.0: some 1.5 million.
A word is written as it stands there most often (`American`, `the`); one that stands there less than
LEAST times is left out.  The same files make the same bytes.
"""

from __future__ import annotations

import argparse
import gzip
import re
from collections import Counter
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

LEAST = 3
PARTS = ("noun", "verb", "adj", "adv")
PROVENANCE = """\
# Where this word list comes from

`words.txt.gz`: a word and how often it stands in the definitions and example sentences of WordNet,
a line, the most common first.  Made by `scripts/make_word_list.py`, which counts; a derived work of

| source | version | licence | used for |
|---|---|---|---|
| [WordNet](https://wordnet.princeton.edu/), Princeton University, as Debian's package \
`wordnet-base` 1:3.0-37 carries it | 3.0; {sources} | WordNet 3.0 licence (`LICENSE` beside this \
file) | the words and their counts; no sentence of it is in the file |

    python scripts/make_word_list.py WORDNET/usr/share/wordnet bench/memtier_bench/words

{words:,} words, counted {total:,} times in all (each at least {least} times); {size:,} bytes, \
sha256 of the text `{digest}`.
"""


def main() -> None:
    """Read WordNet, write the word list, its licence and where it comes from."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wordnet", type=Path, help="the folder with data.noun, data.verb, ...")
    parser.add_argument("words", type=Path, help="the folder to write")
    arguments = parser.parse_args()

    files = {part: (arguments.wordnet / f"data.{part}").read_bytes() for part in PARTS}
    lines = [line for data in files.values() for line in data.decode().splitlines()]
    counts = counted(line for line in lines if not line.startswith("  "))
    text = "".join(f"{word} {count}\n" for word, count in counts.items())
    packed = gzip.compress(text.encode(), 9, mtime=0)

    arguments.words.mkdir(parents=True, exist_ok=True)
    (arguments.words / "words.txt.gz").write_bytes(packed)
    head = files["noun"].decode().partition("\n0")[0].splitlines()
    licence = [re.sub(r"^ +\d+ ?", "", line).rstrip() for line in head]
    (arguments.words / "LICENSE").write_text("\n".join(licence) + "\n", "utf-8")
    sources = ", ".join(f"`data.{p}` sha256 `{sha256(files[p]).hexdigest()}`" for p in PARTS)
    (arguments.words / "PROVENANCE.md").write_text(
        PROVENANCE.format(
            sources=sources,
            words=len(counts),
            total=sum(counts.values()),
            least=LEAST,
            size=len(packed),
            digest=sha256(text.encode()).hexdigest(),
        ),
        "utf-8",
    )


def counted(lines: Iterable[str]) -> dict[str, int]:
    """Return how often each word stands in the glosses, the most common first."""
    spellings: dict[str, Counter[str]] = {}
    for line in lines:
        gloss = line.partition(" | ")[2]
        for word in re.findall(r"[A-Za-z]+(?:'[A-Za-z]+)*", gloss):
            spellings.setdefault(word.casefold(), Counter())[word] += 1
    counts = {
        max(forms, key=lambda word: (forms[word], word)): forms.total()
        for forms in spellings.values()
        if forms.total() >= LEAST
    }
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


if __name__ == "__main__":
    main()
