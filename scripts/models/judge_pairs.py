"""Judge the trees of `fit_replacement.py` with an encoder's features, where they would be used.

    python -m scripts.models.judge_pairs ENCODER TALK JUDGE.py FOLDER ... [--pairs FILE] [--plain]

fits the trees on the sources that no judgement set has a part in, on how near a pair's texts are by
the encoder (`train_pairs.nearness`) beside the words, or on the words alone (``--plain``), and runs
``JUDGE.py FOLDER ... --sets currency,constancy,keep`` with these trees in the place of those that
ship.  TALK has ``statements.jsonl`` and ``relevance.jsonl``.  Needs scikit-learn and ONNX Runtime.
"""

from __future__ import annotations

import argparse
import json
import runpy
import sys
from dataclasses import replace
from pathlib import Path

from memtier_plugin.facts import evolution
from memtier_plugin.retrieval import replacement
from memtier_plugin.retrieval.statements import Rarity, Statement, pair_features
from scripts import fit_replacement
from scripts.models.train_pairs import Tokens, nearness

NAMES = ("near", "near_old", "near_old_least", "near_new", "near_new_least")


def fit_trees(
    talk: Path, pairs: list[Path], mark: float, order: float
) -> replacement.ReplacementModel:
    """Return trees fitted on our own sources and talk, and on `pairs`."""
    own = fit_replacement.written_source(fit_replacement.OWN / "pairs.jsonl")
    sources = [*fit_replacement.made_up_sources(), replace(own, weight=6.0)]
    sources.append(fit_replacement.stores_source())
    sources.append(fit_replacement.changes_source(fit_replacement.OWN / "changes.yaml"))
    sources += [fit_replacement.written_source(path) for path in pairs]
    sources.append(fit_replacement.constant_source(fit_replacement.OWN / "constant.yaml"))
    sources += fit_replacement.talk_sources(talk)
    sources = [source for source in (each.read() for each in sources) if source.rows]
    names = [*sources[0].rows[0]]
    trees = fit_replacement.fit(sources, names)
    for source in sources:
        print(source.name[-24:], fit_replacement.report(source, names, trees, mark), flush=True)
    document = json.loads(json.dumps(fit_replacement.as_document(trees, names, mark, order)))
    document["trees"] = [replacement._planted(tree) for tree in document["trees"]]
    return replacement.ReplacementModel(**document)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("encoder", type=Path)
    parser.add_argument("talk", type=Path)
    parser.add_argument("judge", type=Path)
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--pairs", type=Path, nargs="*", default=[])
    parser.add_argument("--plain", action="store_true", help="by words alone")
    options = parser.parse_args()
    tokens = Tokens(options.encoder)

    def with_nearness(older: Statement, later: Statement, rarity: Rarity) -> dict[str, float]:
        near = nearness(tokens.of(older.text), tokens.of(later.text))
        return {**pair_features(older, later, rarity), **dict(zip(NAMES, near, strict=True))}

    if not options.plain:
        fit_replacement.pair_features = replacement.pair_features = with_nearness
    shipped = replacement.fitted_model()
    model = fit_trees(options.talk, options.pairs, shipped.mark, shipped.order)
    for module in (replacement, evolution):
        module.fitted_model = lambda: model  # type: ignore[assignment]
    sys.argv = [str(options.judge), *options.folders, "--sets", "currency,constancy,keep"]
    runpy.run_path(str(options.judge), run_name="__main__")


if __name__ == "__main__":
    main()
