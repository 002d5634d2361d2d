"""What a store shows and keeps, written so that two versions of the code can be compared.

`python -m tests.proofs.goldens FOLDER` writes the blocks, explanations and facts in full; run it
with both versions and compare the folders. `--conversations FILE` adds the facts of two
conversations of LoCoMo. `--update` renews the digests that the test holds, of blocks and facts:
the scores in an explanation may differ in their last digits between processors.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import tempfile
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import Any, Final

import yaml

from memtier_plugin.memory import MemTier

GOLDEN: Final = Path(__file__).parents[1] / "golden"
STORES: Final[Mapping[str, Any]] = yaml.safe_load((GOLDEN / "prompts.yaml").read_text("utf-8"))
DIGESTS: Final = GOLDEN / "prompts.json"
PROMPTS: Final = 200
OPENING: Final = 6  # words of a line that are said again
# Random, of this run, or of the machine.
_VARYING: Final = frozenset({"ms", "timestamp", "run", "run_id", "session_id", "id"})
_ULID: Final = re.compile(r"\b[0-7][0-9A-HJKMNP-TV-Z]{25}\b")
_DAY_FILE: Final = re.compile(r"\d{4}-\d\d-\d\d\.jsonl")


def write_goldens(language: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each golden: a store's facts, each block and why it is so."""
    store = STORES[language]
    with tempfile.TemporaryDirectory() as home, MemTier.open(home, "p", "main") as memory:
        last = fill(memory, store["says"])
        memory.consolidate()
        yield f"{language}/facts", _list_facts(memory)
        for number, prompt in enumerate(_list_prompts(store)):
            block, why = _show(memory, prompt, number, last)
            yield f"{language}/{number:03}", f"{prompt}\n{block}"
            yield f"{language}/{number:03}-why", why


def write_conversations(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the name of each of the first two conversations of LoCoMo, and its facts."""
    for number, sample in enumerate(json.loads(path.read_text("utf-8"))[:2]):
        conversation = sample["conversation"]
        with tempfile.TemporaryDirectory() as home, MemTier.open(home, "p", "main") as memory:
            session = 1
            while turns := conversation.get(f"session_{session}"):
                day = conversation[f"session_{session}_date_time"]
                memory.record(
                    [
                        {"role": "user", "content": turn["text"], "name": turn["speaker"]}
                        for turn in turns
                    ],
                    session_id=f"s{session}",
                    run_id=f"r{session}",
                    observed_at=datetime.strptime(day, "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC),
                )
                session += 1
            memory.consolidate()
            yield f"conversation-{number}/facts", _list_facts(memory)


def fill(memory: MemTier, says: Mapping[Any, list[str]]) -> datetime:
    """Record a store's days, a session each; return the last day."""
    for day, lines in says.items():
        at = datetime.combine(day, time(9), UTC)
        memory.record(
            [_read_turn(line) for line in lines],
            session_id=f"s-{day}",
            run_id=f"r-{day}",
            observed_at=at,
        )
    return at


def _read_turn(line: str) -> dict[str, Any]:
    who, separator, words = line.partition(": ")
    if not separator or " " in who:
        return {"role": "user", "content": line}
    if who == "assistant":
        return {"role": who, "content": words}
    return {"role": "user", "name": who, "content": words}


def _list_prompts(store: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is asked, then the opening and then the whole of each line, up to the share."""
    contents = [_read_turn(line)["content"] for lines in store["says"].values() for line in lines]
    openings = [" ".join(line.split()[:OPENING]) for line in contents]
    yield from [*store["asks"], *openings, *contents][: PROMPTS // len(STORES)]


def _show(memory: MemTier, prompt: str, number: int, last: datetime) -> tuple[str, str]:
    """Return the block for a prompt, and its explanation."""
    recall = memory.recall(
        prompt,
        session_id=f"asked-{number // 4}",  # a few prompts in each session, for what carries over
        run_id=f"asked-{number}",
        purpose="inject",
        at=last + timedelta(days=9),
    )
    block, why = _mask(recall.text, _write(memory.explain(recall.id)))
    return block, why


def _list_facts(memory: MemTier) -> str:
    facts = memory.facts(include_superseded=True)
    lines = [
        f"{fact.valid_from} {fact.valid_to} {fact.status} {fact.tier} | {fact.subject} | "
        f"{fact.relation} | {fact.value} | {fact.text} | {fact.person} {fact.private_to}"
        for fact in facts
    ]
    return "\n".join(sorted(lines))


def _write(value: Any) -> str:
    return json.dumps(_drop_varying(value), ensure_ascii=False, indent=1, default=str)


def _drop_varying(value: Any) -> Any:
    if isinstance(value, Mapping):
        kept = {key: item for key, item in value.items() if key not in _VARYING}
        return {key: _drop_varying(item) for key, item in kept.items()}
    if isinstance(value, list | tuple):
        return [_drop_varying(item) for item in value]
    return round(value, 6) if isinstance(value, float) else value


def _mask(*texts: str) -> tuple[str, ...]:
    """Number the ids in the order in which they come; the short ones are the ends of others."""
    for number, ulid in enumerate(dict.fromkeys(_ULID.findall("\n".join(reversed(texts))))):
        texts = tuple(
            text.replace(ulid, f"#{number}").replace(ulid[-8:], f"#{number}") for text in texts
        )
    return tuple(_DAY_FILE.sub("DAY.jsonl", text) for text in texts)


def digests(goldens: Mapping[str, str]) -> dict[str, str]:
    """Return a short digest of each golden but the explanations."""
    return {
        name: hashlib.sha256(text.encode()).hexdigest()[:12]
        for name, text in goldens.items()
        if not name.endswith("-why")
    }


def main() -> None:
    """Write the goldens to a folder, or their digests to the file that the test reads."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--conversations", type=Path)
    parser.add_argument("--update", action="store_true")
    options = parser.parse_args()
    goldens = {name: text for language in STORES for name, text in write_goldens(language)}
    if options.update:
        DIGESTS.write_text(json.dumps(digests(goldens), indent=0) + "\n", "utf-8")
    if options.conversations:
        goldens |= dict(write_conversations(options.conversations))
    for name, text in goldens.items() if options.folder else ():
        path = options.folder / f"{name}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
