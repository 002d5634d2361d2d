"""Train a model that reads prompt and line together on public rows, and judge it.

    python -m scripts.models.train_cross_encoder ENCODER RELEVANCE.jsonl FOLDER OUT --judge NAMES

FOLDER has the files of `candidates.py`.  RELEVANCE has rows ``{q, pos, neg, lang, source}``, of
which those in English are used whose sources are not share-alike.  With ``--tune N`` the model that
judges a set is then trained on N prompts of each set of another family, too.  OUT gets the weights
and ``figures.json``.  The same seed gives the same bytes.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional

from scripts.models.cross_encoder import CrossEncoder
from scripts.models.figures import Judged, Scores, family, judge
from scripts.models.rows import Group, read_candidates, read_found, read_public

DEV: Final = 400  # public rows that are not trained on
CHUNK: Final = 16  # pairs that go through the model at once, of about the same length
FOREIGN_LINES: Final = 10


def score(model: CrossEncoder, groups: Sequence[Group], lines: int | None = None) -> list[Tensor]:
    """Return the logits of each group's first lines."""
    pairs = [model.read(group.query, group.lines[:lines]) for group in groups]
    flat = [pair for each in pairs for pair in each]
    order = sorted(range(len(flat)), key=lambda number: len(flat[number][0]))
    parts = [order[start : start + CHUNK] for start in range(0, len(order), CHUNK)]
    logits = torch.cat([model([flat[number] for number in part]) for part in parts])
    back = torch.empty(len(order), dtype=torch.long)
    back[torch.tensor(order)] = torch.arange(len(order))
    return [*logits[back].split([len(each) for each in pairs])]


def loss_of(logits: Sequence[Tensor], groups: Sequence[Group]) -> Tensor:
    """Return the loss: the right line before the others, and each line by itself."""
    losses = []
    for values, group in zip(logits, groups, strict=True):
        right = torch.tensor([bool(gold) for gold in group.gold])
        each = functional.binary_cross_entropy_with_logits(values, right.float(), reduction="none")
        loss = each[~right].mean()
        if right.any():
            loss = loss + each[right].mean() + values.logsumexp(0) - values[right].logsumexp(0)
        losses.append(loss)
    return torch.stack(losses).mean()


def train(
    model: CrossEncoder, groups: Sequence[Group], options: argparse.Namespace, rate: float
) -> float:
    """Train through the groups once; return the mean loss of the last quarter."""
    model.words.requires_grad_(False)  # most of the weights, and the rows have few of the words
    free = [weights for weights in model.parameters() if weights.requires_grad]
    optimiser = torch.optim.AdamW(free, rate, weight_decay=0.01)
    steps = -(-len(groups) // options.batch)
    warm = max(1, steps // 20)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda step: min((step + 1) / warm, 1 - 0.95 * step / steps)
    )
    losses, start = [], time.process_time()
    for step in range(steps):
        batch = groups[step * options.batch : (step + 1) * options.batch]
        loss = loss_of(score(model, batch), batch)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(free, 1.0)
        optimiser.step()
        schedule.step()
        losses.append(float(loss.detach()))
        if step % 25 == 24:
            print(step + 1, steps, np.mean(losses[-25:]), time.process_time() - start, flush=True)
    return round(float(np.mean(losses[-max(1, steps // 4) :])), 4)


@torch.inference_mode()
def judge_public(model: CrossEncoder, groups: Sequence[Group]) -> dict[str, float]:
    """Return how often the right line is first, and how the best tells answers from none."""
    first, best = [], {"own": [], "foreign": []}
    for start in range(0, len(groups), 32):
        batch = groups[start : start + 32]
        for values, group in zip(score(model, batch), batch, strict=True):
            best[group.kind].append(float(values.max()))
            if group.kind == "own":
                first.append(int(values.argmax()) == 0)
    pairs = np.array(best["own"])[:, None] > np.array(best["foreign"])[None]
    return {"first": round(float(np.mean(first)), 4), "auc": round(float(pairs.mean()), 4)}


@torch.inference_mode()
def judge_candidates(model: CrossEncoder, groups: Sequence[Group], lines: int) -> Judged:
    """Return the groups with the model's logits; see `figures`."""
    logits: list[Scores] = []
    for group in groups:
        most = lines if group.kind == "own" else FOREIGN_LINES
        logits.append(score(model, [group], most)[0].double().numpy())
    return Judged(groups, logits)


def tune(model: CrossEncoder, name: str, options: argparse.Namespace) -> CrossEncoder:
    """Return the model trained on prompts of the sets of other families, too."""
    others = [other for other in options.judge if family(other) != family(name)]
    paths = [options.folder / f"{other}.jsonl" for other in others]
    groups = read_found(paths, options.tune, options.seed, options.negatives)
    tuned = copy.deepcopy(model).train()
    loss = train(tuned, groups, options, options.tune_rate)
    print(name, len(groups), "prompts of others", loss, flush=True)
    return tuned.eval()


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("encoder", "relevance", "folder", "out"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--judge", nargs="*", default=[])
    parser.add_argument("--layers", type=int, nargs="+", default=[0, 1], help="of the encoder")
    parser.add_argument("--rows", type=int, default=6_000, help="public rows to train on")
    parser.add_argument("--negatives", type=int, default=3, help="of a row")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rate", type=float, default=1.5e-4)
    parser.add_argument("--tune", type=int, default=0, help="prompts of each set of a family")
    parser.add_argument("--tune-rate", type=float, default=5e-5)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--prompts", type=int, default=80, help="own and foreign, of each set")
    parser.add_argument("--lines", type=int, default=30, help="that the model orders")
    return parser.parse_args()


def main() -> None:
    options = parse_options()
    torch.manual_seed(options.seed)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    options.out.mkdir(parents=True, exist_ok=True)
    groups = read_public(options.relevance, options.seed, options.negatives)
    held_out, groups = groups[:DEV], groups[DEV : DEV + options.rows]
    model = CrossEncoder(options.encoder, options.layers)
    figures: dict[str, Any] = {"rows": len(groups), "layers": options.layers}
    start = time.process_time()
    figures["loss"] = train(model, groups, options, options.rate)
    figures["train_cpu_seconds"] = round(time.process_time() - start)
    weights = options.out / "cross-encoder.safetensors"
    save_file({name: values.half() for name, values in model.state_dict().items()}, weights)
    figures["sha256"] = sha256(weights.read_bytes()).hexdigest()
    model.eval()
    figures["public"] = judge_public(model, held_out)
    print(json.dumps(figures), flush=True)
    sets = {}
    for name in options.judge:
        asked = read_candidates(options.folder / f"{name}.jsonl", options.prompts, options.prompts)
        tuned = tune(model, name, options) if options.tune else model
        sets[name] = judge_candidates(tuned, [*asked], options.lines)
        print(name, round(time.process_time()), flush=True)
    if sets:
        figures["sets"] = judge(sets)
    (options.out / "figures.json").write_text(json.dumps(figures, indent=1) + "\n")
    print(json.dumps(figures.get("sets")), flush=True)


if __name__ == "__main__":
    main()
