"""The plugin that MemTier finds by entry point: CLI commands that measure and train."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from memtier_plugin.core.entry_points import CommandSpec

# The modules behind the commands, by the words that follow `memtier`.
EXAMPLES: Final = {
    "bench": "locomo --data locomo10.json",
    "bench ablation": "longmemeval --data longmemeval_s.json",
    "bench answers": "--data locomo10.json --sample 60 --replies replies.jsonl",
    "bench attribution": "",
    "bench beam": "--data beam/100K",
    "bench compare": "before.json after.json",
    "bench consolidation": "",
    "bench durability": "",
    "bench facts": "--data locomo10.json --limit 2",
    "bench gate": "--data locomo10.json --sample 60",
    "bench judgement": "judgement",
    "bench gate-check": "--data locomo10.json",
    "bench languages": "",
    "bench learners": "locomo10.json",
    "bench locomo": "--data locomo10.json --limit 2",
    "bench longmemeval": "--data longmemeval_s.json --limit 50",
    "bench model": "",
    "bench peers": "--data locomo10.json --only bm25,mem0",
    "bench code": "--repositories 1",
    "bench recipes": "--worlds 3",
    "bench router": "--data locomo10.json",
    "bench steps": "--data locomo10.json --sample 500",
    "bench scale": "",
    "bench serve": "--tenants 200 --turns 400",
    "bench shared": "--url postgresql://owner@db.example.org/postgres --markdown shared.md",
    "bench sets": "sets",
    "bench silence": "--data locomo10.json",
    "bench uplift": "--data locomo10.json",
    "bench table": "1 --data locomo10.json",
    "bench telemetry": "",
    "bench trees": "--data locomo10.json --sample 100",
    "bench work": "--set tune --arms no-floor,bm25 --failures 5",
    "learn": "log",
    "learn log": "",
    "learn policy": "--data locomo10.json --sample 100",
    "learn export": "rows --data locomo10.json --sample 100",
    "learn router": "--data locomo10.json --apply",
    "learn revert": "4QRY442D",
    "learn weights": "--history --apply",
}


def memtier_commands() -> Mapping[str, CommandSpec]:
    """Return `memtier bench` and `memtier learn`."""
    section = "Set up and measure"
    return {
        "bench": CommandSpec(
            "memtier_bench.cli.commands",
            "Measure recall and cost, apart from your own memory.",
            section,
            EXAMPLES,
        ),
        "learn": CommandSpec(
            "memtier_bench.cli.learn",
            "Learn from this project's use; show or undo what was learned.",
            section,
            EXAMPLES,
        ),
    }
