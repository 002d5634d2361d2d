"""Fit the trees by which an older line counts as replaced by a later one.

Pairs of an older and a later line come from sources that weigh the same each:

- ``tests/retrieval/replacements.yaml`` and ``scripts/replacement/pairs.jsonl``, written by hand;
- ``scripts/replacement/stores.yaml``, in which most pairs are of two subjects or attributes;
- histories in the shape of the judgement sets (``changes.yaml``, ``--changes``), with pairs of
  lines of different histories as unchanged;
- stores in which nothing changes, in their shape (``constant.yaml``, ``--constant``);
- pairs in the shape of ``pairs.jsonl`` (``--pairs``);
- talk in which hardly anything changes (``--talk``, a folder with ``statements.jsonl`` and
  ``relevance.jsonl``): the lines that have most in common count as unchanged.  Most pairs that a
  recall meets are of this kind, so they weigh as much as all changes.

How rare a word is differs from store to store, so each pair is seen among all lines of its source
or among a few that are most like it.  The trees minimise the logistic loss (Friedman 2001).  Needs
``pip install scikit-learn``.

    python scripts/fit_replacement.py --changes currency.yaml --talk FOLDER

prints for each source, with trees fitted without it, how many changes are recognised at the mark
and how many unchanged pairs are not, and writes ``memtier_plugin/retrieval/replacement.json``.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

from memtier_plugin.core.records import Entry, Role, count_tokens
from memtier_plugin.core.results import Hit
from memtier_plugin.retrieval import replacement
from memtier_plugin.retrieval.replacement import find_pairs
from memtier_plugin.retrieval.statements import Rarity, pair_features, statements

if TYPE_CHECKING:
    from sklearn.ensemble import GradientBoostingClassifier  # type: ignore[import-not-found]

ROOT = Path(__file__).parent.parent
CASES = ROOT / "tests" / "retrieval" / "replacements.yaml"
OWN = Path(__file__).with_name("replacement")
MODEL = Path(replacement.__file__).with_name("replacement.json")
FIRST_DAY = datetime(2026, 1, 5, 9, tzinfo=UTC)
TREES, DEPTH, LEAF = 140, 3, 20
UNCHANGED = 3.0
LATER, NEAREST = 500, 4  # lines of one kind of talk, and older ones that are compared with each
OF_TALK, SHORTEST = 1500, 15  # lines of one kind of talk, and characters of each
CONSTANT_WEIGHT = 3.0  # of a file of stores in which nothing changes
TALK_WEIGHT = 1.5  # of each kind of talk
TALK = ("irc-ubuntu", "molweni", "qmsum")  # of the lines of relevance.jsonl
OF_STORE, ACROSS = 260, 1500  # pairs of a store, and of lines of different histories
NEAR = (2, 6, 15, 40, None, None, None)  # lines among which a pair is seen; None is all


@dataclass(frozen=True, slots=True)
class Told:
    """Two lines, and whether the later replaces the older."""

    old: Hit
    new: Hit
    changed: bool


@dataclass(slots=True)
class Source:
    """The pairs of one source: features, and whether the later line replaces the older."""

    name: str
    pairs_told: list[Told] = field(default_factory=list)
    rows: list[dict[str, float]] = field(default_factory=list)
    labels: list[bool] = field(default_factory=list)
    texts: list[tuple[str, str]] = field(default_factory=list)
    missing: int = 0  # changes that made no pair, and can never be recognised
    weight: float = 1.0
    near: bool = True  # whether some pairs are seen among a few lines alone

    def read(self, seed: int = 1) -> Source:
        """Return the source with the features of its pairs."""
        draw = random.Random(seed)
        words = {
            hit.text: _content(hit) for each in self.pairs_told for hit in (each.old, each.new)
        }
        in_source = Rarity(Counter(w for content in words.values() for w in content), len(words))
        having: dict[str, list[str]] = defaultdict(list)
        for text, content in sorted(words.items()):
            for word in sorted(content):
                having[word].append(text)
        for each in self.pairs_told:
            pairs = [*find_pairs([each.old, each.new])]
            self.missing += each.changed and not pairs
            for pair in pairs:
                count = draw.choice(NEAR) if self.near else None
                rarity = in_source if count is None else self._near(count, words, having, each)
                self.rows.append(pair_features(pair.old, pair.new, rarity))
                self.labels.append(each.changed)
                self.texts.append((pair.old.text, pair.new.text))
        return self

    def _near(
        self,
        count: int,
        words: dict[str, frozenset[str]],
        having: dict[str, list[str]],
        told_pair: Told,
    ) -> Rarity:
        """Return how rare words are among a pair and so many lines that are most like it."""
        alike: Counter[str] = Counter()
        for word in sorted(words[told_pair.old.text] | words[told_pair.new.text]):
            alike.update(having[word][:200])
        shown = [told_pair.old.text, told_pair.new.text]
        others = [text for text, _ in alike.most_common(count + 2) if text not in shown]
        near = [*shown, *others[:count]]
        return Rarity(Counter(word for text in near for word in words[text]), len(near))


def _content(hit: Hit) -> frozenset[str]:
    return frozenset[str]().union(*(part.content for part in statements(hit.text)))


def entry_hit(
    text: str,
    day: int,
    role: Role = "user",
    speaker: str | None = None,
    *,
    session: str = "",
    turn: int = 1,
) -> Hit:
    """Return a line as a hit."""
    name = f"{day:04d}{turn:02d}{abs(hash(text)) % 10**8:08d}"
    moment = FIRST_DAY + timedelta(days=day, minutes=turn)
    entry = Entry(
        id=name,
        timestamp=moment,
        session_id=session or f"s{day}-{name}",
        project="p",
        content=text,
        tokens=count_tokens(text),
        agent_id="main",
        run_id=name,
        turn=turn,
        role=role,
        origin="assistant" if role == "assistant" else "user",
        observed_at=moment,
        speaker=speaker,
        key=name,
    )
    return Hit(item=entry, score=1.0, signals={}, sources=(entry.source,))


def spoken_hit(line: str, day: int) -> Hit:
    """Return a line of the cases as a hit: "ann: ..." is ann's."""
    who, colon, text = line.partition(": ")
    if not colon or not (who.isalpha() and who.islower()):
        return entry_hit(line, day)
    role: Role = "assistant" if who == "assistant" else "user"
    return entry_hit(text, day, role, None if who == "assistant" else who)


# -- sources ---------------------------------------------------------------------------------------


def made_up_sources() -> Iterator[Source]:
    """Yield the pairs of the made-up cases, a source for each language."""
    for language, block in yaml.safe_load(CASES.read_text(encoding="utf-8")).items():
        draw = random.Random(1)
        own = [
            Told(spoken_hit(older, 10), spoken_hit(later, 40), key == "changed")
            for key in ("changed", "unchanged")
            for older, later, _ in block[key]
        ]
        across = []
        for _ in range(400):
            first, second = draw.sample(own, 2)
            across.append(Told(first.old, second.new, changed=False))
        yield Source(language, own + across)


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of a file, one a line."""
    yield from map(json.loads, path.read_text(encoding="utf-8").splitlines())


def written_source(path: Path) -> Source:
    """Return pairs that are written down, one JSON object a line."""
    pairs_told = []
    for number, row in enumerate(_rows(path)):
        adjacent = row.get("adj", False)
        role: Role = "assistant" if row.get("by") == "assistant" else "user"
        session = f"w{number}" if adjacent else ""
        old = entry_hit(row["old"], 10, session=session)
        new = entry_hit(row["new"], 10 if adjacent else 40, role, session=session, turn=2)
        changed = row["label"] in (1, "replaces")
        pairs_told.append(Told(old, new, changed))
    return Source(path.stem, pairs_told)


def stores_source() -> Source:
    """Return pairs of lines of the made-up stores: mostly of two subjects, or attributes."""
    document = yaml.safe_load((OWN / "stores.yaml").read_text(encoding="utf-8"))
    draw, pairs_told = random.Random(3), list[Told]()
    for store in document["stores"]:
        subjects, attributes = store["subjects"], store["attributes"]
        changes = document["changes"][store["lang"]]

        def say(subject: str, nth: int, attributes: Any = attributes) -> tuple[str, str]:
            attribute = attributes[nth]
            values = attribute["values"]
            numbers = {"number": (11, 99), "hour": (6, 22)}
            value = (
                str(draw.randint(*numbers[values]))
                if isinstance(values, str)
                else draw.choice(values)
            )
            text = draw.choice(attribute["say"]).format(s=subject, v=value)
            return text[0].upper() + text[1:], value

        def as_news(text: str, lang: str = store["lang"], changes: Any = changes) -> str:
            plain = text if lang == "de" else text[0].lower() + text[1:]
            news = draw.choice(changes).format(x=plain.rstrip(".。"))
            return f"{news[0].upper()}{news[1:]}{'。' if lang == 'zh' else '.'}"

        for _ in range(OF_STORE):
            subject, nth = draw.choice(subjects), draw.randrange(len(attributes))
            (text, value), kind = say(subject, nth), draw.random()
            if changed := kind < 0.35:
                later, other = say(subject, nth)
                while other == value:
                    later, other = say(subject, nth)
            else:
                same = kind < 0.6
                about = subject if same else draw.choice([s for s in subjects if s != subject])
                rest = [i for i in range(len(attributes)) if i != nth]
                later, _ = say(about, draw.choice(rest) if same or draw.random() < 0.3 else nth)
            if draw.random() < (0.35 if changed else 0.15):
                later = as_news(later)
            pairs_told.append(Told(entry_hit(text, 10), entry_hit(later, 40), changed))
    return Source("stores", pairs_told, weight=2.0)


def changes_source(path: Path) -> Source:
    """Return the pairs of a file of changes."""
    cases = yaml.safe_load(path.read_text(encoding="utf-8"))["cases"]
    pairs_told, lines_by_case = list[Told](), list[tuple[str, Hit]]()

    def has(text: str, values: Iterable[str]) -> bool:
        return any(part.casefold() in text.casefold() for v in values for part in v.split("|"))

    for case in cases:
        lines: list[Hit] = []
        for number, (_, *turns) in enumerate(case["history"]):
            for turn, each in enumerate(turns):
                who, words = next(iter(each.items()))
                if who == "tool" or words.endswith(("?", "？")):
                    continue
                role: Role = "assistant" if who == "assistant" else "user"
                speaker = None if who in ("user", "assistant") else who
                session = f"{case['id']}-{number}"
                lines.append(
                    entry_hit(words, 20 * number, role, speaker, session=session, turn=turn)
                )
        lines_by_case += [(case["id"], line) for line in lines]
        for old, new in combinations(lines, 2):
            states = [
                "now" if has(h.text, case["now"]) else "old" if has(h.text, case["old"]) else ""
                for h in (old, new)
            ]
            changed = states == ["old", "now"]
            if changed or "" in states:
                pairs_told.append(Told(old, new, changed))
    draw = random.Random(5)
    for _ in range(ACROSS):
        (first, old), (second, new) = draw.sample(lines_by_case, 2)
        if first != second:
            assert isinstance(new.item, Entry)
            later = replace(new.item, observed_at=FIRST_DAY + timedelta(days=99))
            pairs_told.append(Told(old, replace(new, item=later), changed=False))
    return Source(str(path), pairs_told, weight=3.0)


def constant_source(path: Path) -> Source:
    """Return the pairs of a file of stores in which nothing changes."""
    told_pairs, draw = list[Told](), random.Random(9)
    for number, store in enumerate(yaml.safe_load(path.read_text(encoding="utf-8"))):
        texts = []
        for attribute in store["attributes"]:
            figures = draw.sample(range(40, 90), len(store["subjects"]))
            for subject, figure in zip(store["subjects"], figures, strict=True):
                texts.append(
                    attribute["say"].format(s=subject, n=figure, w=draw.choice(store["words"]))
                )
        draw.shuffle(texts)
        hits = [
            entry_hit(text, 10 + at, session=f"c{number}-{at}") for at, text in enumerate(texts)
        ]
        told_pairs += [Told(old, new, changed=False) for old, new in combinations(hits, 2)]
    return Source(str(path), told_pairs, weight=CONSTANT_WEIGHT)


def talk_sources(folder: Path) -> Iterator[Source]:
    """Yield pairs of lines of talk that have most in common, a source for each place it is from.

    What is said there hardly ever replaces an earlier line, so every pair counts as unchanged.
    """
    lines: dict[str, list[str]] = defaultdict(list)
    for name, labels in (("statements", ("drop",)), ("relevance", ("pos", "neg"))):
        for row in _rows(folder / f"{name}.jsonl"):
            if name == "relevance" and row["source"] in TALK:
                lines[row["source"]] += [text for label in labels for text in row[label]]
            elif name == "statements" and row["label"].startswith(labels):
                lines[f"{row['source']} {row['lang']}"].append(row["text"])
    for source, texts in sorted(lines.items()):
        draw, told_pairs = random.Random(7), list[Told]()
        kept = sorted({text for text in texts if len(text) >= SHORTEST})
        hits = [
            entry_hit(text, at)
            for at, text in enumerate(draw.sample(kept, min(OF_TALK, len(kept))))
        ]
        contents = [_content(hit) for hit in hits]
        counts = Counter(word for content in contents for word in content)
        having: dict[str, list[int]] = defaultdict(list)
        for at, content in enumerate(contents):
            for word in content:
                having[word].append(at)
        for later in draw.sample(range(len(hits)), min(LATER, len(hits))):
            alike: Counter[int] = Counter()
            for word in sorted(contents[later]):
                for at in having[word]:
                    if at < later:
                        alike[at] += 1 / counts[word]
            told_pairs += [
                Told(hits[at], hits[later], changed=False) for at, _ in alike.most_common(NEAREST)
            ]
        yield Source(source, told_pairs, weight=TALK_WEIGHT, near=False)


# -- fitting ---------------------------------------------------------------------------------------


def fit(sources: Sequence[Source], names: Sequence[str]) -> GradientBoostingClassifier:
    """Return the trees; a source's unchanged pairs weigh as much as `UNCHANGED` of its changes.

    In a store far more pairs are unchanged than in the sources.
    """
    from sklearn.ensemble import GradientBoostingClassifier  # the tests use the rest without it

    rows, labels, weights = [], [], []
    for source in sources:
        values = np.array([[row[name] for name in names] for row in source.rows])
        label = np.array(source.labels)
        both = label.any() and not label.all()
        for mask in (label, ~label):
            if mask.any():
                rows.append(values[mask])
                labels.append(label[mask])
                share = source.weight * (UNCHANGED if both and mask is not label else 1.0)
                weights.append(np.full(int(mask.sum()), share / mask.sum()))
    trees = GradientBoostingClassifier(
        n_estimators=TREES,
        max_depth=DEPTH,
        learning_rate=0.1,
        subsample=0.7,
        min_samples_leaf=LEAF,
        random_state=0,
    )
    weight = np.concatenate(weights)
    return trees.fit(np.vstack(rows), np.concatenate(labels), weight / weight.mean())


def report(
    source: Source, names: Sequence[str], trees: GradientBoostingClassifier, mark: float
) -> dict[str, Any]:
    """Return how many changes are recognised, and how many unchanged pairs are not."""
    p = _probabilities(source, names, trees)
    label = np.array(source.labels)
    changed = int(label.sum()) + source.missing
    return {
        "changes": changed,
        "recognised": round(float((p[label] >= mark).sum()) / changed, 3) if changed else None,
        "unchanged": int((~label).sum()),
        "wrong": int((p[~label] >= mark).sum()),
    }


def _probabilities(
    source: Source, names: Sequence[str], trees: GradientBoostingClassifier
) -> np.ndarray:
    values = np.array([[row[name] for name in names] for row in source.rows])
    return np.asarray(trees.predict_proba(values)[:, 1])


def as_document(
    trees: GradientBoostingClassifier, names: Sequence[str], mark: float, order: float
) -> dict[str, Any]:
    """Return the trees as the plugin reads them."""
    prior = float(trees.init_.class_prior_[1])
    trees_as_arrays = []
    for [regressor] in trees.estimators_:
        tree = regressor.tree_
        inner = tree.children_left >= 0
        trees_as_arrays.append(
            [
                [
                    names[i] if is_inner else ""
                    for i, is_inner in zip(tree.feature, inner, strict=True)
                ],
                [
                    round(float(t), 4) if i else 0
                    for t, i in zip(tree.threshold, inner, strict=True)
                ],
                [int(max(0, child)) for child in tree.children_left],
                [int(max(0, child)) for child in tree.children_right],
                [
                    0 if i else round(trees.learning_rate * float(v), 4)
                    for v, i in zip(tree.value[:, 0, 0], inner, strict=True)
                ],
            ]
        )
    start = round(float(np.log(prior / (1 - prior))), 4)
    return {"start": start, "trees": trees_as_arrays, "mark": mark, "order": order}


def main() -> None:
    """Fit, report, and write the model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--changes", type=Path, nargs="*", default=[])
    parser.add_argument("--pairs", type=Path, nargs="*", default=[])
    parser.add_argument("--constant", type=Path, nargs="*", default=[])
    parser.add_argument("--talk", type=Path)
    parser.add_argument("--mark", type=float, default=0.42)
    parser.add_argument("--order", type=float, default=0.25)
    parser.add_argument("--without", nargs="*", default=[], help="features to leave out")
    parser.add_argument("--only", nargs="*", help="sources to report on; none: just fit")
    parser.add_argument("--verbose", action="store_true", help="list what goes wrong")
    given = parser.parse_args()
    own = replace(written_source(OWN / "pairs.jsonl"), weight=6.0)
    sources = [*made_up_sources(), own, stores_source()]
    sources += [changes_source(path) for path in (OWN / "changes.yaml", *given.changes)]
    sources += [written_source(path) for path in given.pairs]
    sources += [constant_source(path) for path in (OWN / "constant.yaml", *given.constant)]
    sources += [*talk_sources(given.talk)] if given.talk else []
    sources = [source for source in (each.read() for each in sources) if source.rows]
    names = [name for name in sources[0].rows[0] if name not in given.without]
    for source in sources:
        if given.only is not None and not any(part in source.name for part in given.only):
            continue
        trees = fit([other for other in sources if other is not source], names)
        print(f"{source.name[-24:]:24}", json.dumps(report(source, names, trees, given.mark)))
        if given.verbose:
            _list_errors(source, names, trees, given.mark)
    document = as_document(fit(sources, names), names, given.mark, given.order)
    MODEL.write_text(json.dumps(document, separators=(",", ":")) + "\n", encoding="utf-8")


def _list_errors(
    source: Source, names: Sequence[str], trees: GradientBoostingClassifier, mark: float
) -> None:
    p = _probabilities(source, names, trees)
    for value, changed, (old, new) in zip(p, source.labels, source.texts, strict=True):
        if (value >= mark) != changed:
            what = "missed" if changed else "WRONG "
            print("   ", what, f"{value:.2f}", old[:90], new[:90], sep=" | ")


if __name__ == "__main__":
    main()
