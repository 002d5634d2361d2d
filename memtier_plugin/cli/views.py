"""What the commands show a person: every view takes the JSON document that `--json` prints.

Remembered text comes from anywhere, so nothing of it may drive the terminal: `escape_controls`
makes control characters visible, and no text ever passes through rich's markup.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from memtier_plugin.core.records import Entry
from memtier_plugin.core.results import Hit, Recall
from memtier_plugin.core.times import to_iso
from memtier_plugin.retrieval.block import SHORT_ID_CHARS
from memtier_plugin.trust.escaping import reveal_hidden

Document = Mapping[str, Any]

HIDDEN: Final = "(forgotten, or another agent's)"
WIDTH_OF_PIPES: Final = 100  # where there is no terminal to ask
INDENT: Final = (0, 0, 0, 13)  # below the text of a ranked line
LEVEL_MARKS: Final = {"ok": "✓", "warn": "!", "error": "✗"}
LEVEL_COLOURS: Final = {"ok": "green", "warn": "yellow", "error": "red"}

# C0 but tab and newline, DEL, C1, the marks that reorder a line, and halves of surrogate pairs.
_CONTROL_CHARS: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def escape_controls(text: object) -> str:
    """Return the text with everything that could drive a terminal made visible."""
    return reveal_hidden(_CONTROL_CHARS.sub(_visible_form, str(text)))


def _visible_form(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x20:
        return chr(0x2400 + code)  # Unicode's control pictures: ESC is shown as ␛
    return "␡" if code == 0x7F else f"<U+{code:04X}>"


def make_console(*, stderr: bool = False) -> Console:
    """Return a console on the current stdout or stderr, without markup and highlighting."""
    out = sys.stderr if stderr else sys.stdout
    width = None if out.isatty() else WIDTH_OF_PIPES
    return Console(file=out, width=width, markup=False, highlight=False, emoji=False)


def safe_text(value: object, style: str = "") -> Text:
    """Return safe text for a cell or a line."""
    return Text(escape_controls(value), style=style)


def one_line(value: object, limit: int = 200) -> str:
    """Return the value on one line, cut to a limit."""
    line = " ".join(str(value).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def name_value_table(rows: Iterable[tuple[str, object]]) -> Table:
    """Return a list of names and values, the names aligned."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in rows:
        grid.add_row(name, value if isinstance(value, Text) else safe_text(value))
    return grid


def column_table(*names: str, right: Iterable[str] = (), wide: Iterable[str] = ()) -> Table:
    """Return an empty table with a ruled head; columns in `wide` wrap, the others do not."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    for name in names:
        table.add_column(
            name,
            justify="right" if name in right else "left",
            no_wrap=name not in wide,
            overflow="fold",
            ratio=1 if name in wide else None,
        )
    return table


def format_time(iso: object) -> str:
    """Return a time from disk as date and minute, or a dash for none."""
    return escape_controls(str(iso)[:16].replace("T", " ")) if iso else "-"


def short_id(item_id: object) -> str:
    """Return the end of an id, as it stands in an injected block."""
    return escape_controls(item_id)[-SHORT_ID_CHARS:]


def format_value(value: object) -> str:
    """Return a value as a person writes it: yes and no, lists with commas, a dash for nothing."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        parts = ((k, format_value(v), isinstance(v, Mapping)) for k, v in value.items())
        return ", ".join(f"{k} ({v})" if nested else f"{k} {v}" for k, v, nested in parts) or "-"
    if isinstance(value, (list, tuple)):
        return ", ".join(format_value(part) for part in value) or "-"
    return "-" if value is None or value == "" else str(value)


def doctor_view(document: Document) -> RenderableType:
    """Show what was checked; below each finding that is not fine, where and what to do."""
    parts: list[RenderableType] = []
    for finding in document["findings"]:
        level = finding["level"]
        parts.append(
            Text.assemble(
                (LEVEL_MARKS[level] + " ", LEVEL_COLOURS[level]), safe_text(finding["what"])
            )
        )
        if level != "ok":
            rows = [(key, finding[key]) for key in ("where", "remedy") if finding[key]]
            parts.append(Padding(name_value_table(rows), (0, 0, 0, 4), expand=False))
    return Group(*parts)


def log_view(line: Document) -> RenderableType:
    """Show one line of the log: an entry, a heading, or what the journal says happened."""
    kind = line["kind"]
    if kind == "heading":
        return Group("", safe_text(line["text"], "bold"))
    grid = Table.grid(padding=(0, 1), expand=True)
    for width in (5, 14, SHORT_ID_CHARS):
        grid.add_column(width=width, no_wrap=True, overflow="ellipsis")
    grid.add_column(ratio=1, overflow="fold")
    grid.add_column(width=7, justify="right", no_wrap=True)
    if kind == "entry":
        grid.add_row(*_entry_cells(line))
    else:
        happened = safe_text(line["text"], "dim italic")
        when = safe_text(line["timestamp"][11:16], "dim")
        grid.add_row(when, "", "", Text.assemble(("↳ ", "dim"), happened), "")
    return grid


def _entry_cells(entry: Document) -> Sequence[RenderableType]:
    tool = entry.get("tool") or {}
    who = entry["speaker"] or entry["sender"] or tool.get("name") or entry["role"]
    content = safe_text(entry["content"], "dim" if entry["role"] in ("tool", "system") else "")
    if tool.get("ok") is not None:
        level = "ok" if tool["ok"] else "error"
        content = Text.assemble((LEVEL_MARKS[level] + " ", LEVEL_COLOURS[level]), content)
    weight = entry["cognitive_weight"]
    marks = Text("★ " if entry["promoted"] else "", "yellow")
    if weight:
        marks.append(f"{weight:+.2f}", "green" if weight > 0 else "red")
    return (
        safe_text(entry["observed_at"][11:16], "dim"),
        safe_text(who, "cyan" if entry["role"] == "user" else "blue"),
        safe_text(short_id(entry["id"]), "dim"),
        content,
        marks,
    )


def recall_document(found: Recall, limit: int) -> dict[str, Any]:
    """Return a recall with its first hits as a document."""
    injected = [hit.id for hit in found.injected]
    notes = {hit.id: hit.note for hit in found.injected}  # made when the lines were chosen
    return {
        "id": found.id,
        "query": found.query,
        "label": found.label,
        "found": len(found.hits),
        "injected": injected,
        "tokens": found.tokens,
        "ms": round(found.ms, 3),
        "postings": found.postings,
        "vectors": found.vectors,
        "depth": found.depth,
        "route": found.route.to_json() if found.route else None,
        "steps": [step.to_json() for step in found.steps],
        "hits": [
            {
                **_hit_document(hit),
                "rank": rank,
                "injected": hit.id in injected,
                "note": notes.get(hit.id, hit.note),
            }
            for rank, hit in enumerate(found.hits[:limit], 1)
        ],
    }


def _hit_document(hit: Hit) -> dict[str, Any]:
    item = hit.item
    when = item.observed_at if isinstance(item, Entry) else item.valid_from or item.timestamp
    who = item.speaker or item.sender or item.role if isinstance(item, Entry) else "fact"
    first = hit.sources[0]
    return {
        "id": hit.id,
        "score": hit.score,
        "tier": hit.tier,
        "date": to_iso(when)[:10],
        "who": who,
        "text": hit.text,
        "place": f"{first.file}:{first.line}" if first.file else f"entry {first.entry}",
        "sources": [asdict(source) for source in hit.sources],
        "signals": dict(hit.signals),
        "weight": hit.weight,
        "note": hit.note,
    }


def recall_view(document: Document) -> RenderableType:
    """Show ranked hits, each with its place in the ledger, and what would be injected."""
    hits = document["hits"]
    parts: list[RenderableType] = []
    for hit in hits:
        mark = Text("▸" if hit["injected"] else " ", "green")
        head = Text.assemble(mark, (f"{hit['rank']:>3} {hit['score']:.4f}  ", "bold"))
        place = " · ".join(str(hit[name]) for name in ("tier", "date", "who", "id", "place"))
        parts += [head.append_text(safe_text(one_line(hit["text"], 400)))]
        parts.append(Padding(safe_text(place, "cyan"), INDENT, expand=False))
        if hit["note"]:
            parts.append(Padding(safe_text(hit["note"], "yellow"), INDENT, expand=False))
        if document["signals"]:
            shown = (f"{name} {value:.3f}" for name, value in hit["signals"].items() if value)
            parts.append(Padding(safe_text("  ".join(shown), "dim"), INDENT, expand=False))
    parts.append(
        safe_text(
            f"{document['found']} found, {len(document['injected'])} (▸) would be injected: "
            f"{document['tokens']} tokens; {document['label']}, {document['ms']:.0f} ms, "
            f"{document['postings']} postings read; recall {document['id']}",
            "dim",
        )
    )
    if document["route"]:
        parts.append(
            safe_text("; ".join(": ".join(one) for one in describe_depth(document)[:2]), "dim")
        )
    if document["text"]:
        parts += ["", safe_text(document["text"])]
    return Group(*parts)


def describe_depth(document: Document) -> list[tuple[str, str]]:
    """Return how deep a recall went, what the router decided, and what each step took."""
    told = []
    if document.get("depth", "mixed") != "mixed":
        told.append(("depth", document["depth"]))
    if route := document.get("route"):
        went = {"S": "answered from the facts", "R": "went to the log"}[route["action"]]
        told.append(("route", f"{went}, doubt {route['doubt']:.2f}: {'; '.join(route['why'])}"))
    if steps := document.get("steps"):
        told.append(("steps", ", ".join(f"{step['name']} {step['ms']:.1f} ms" for step in steps)))
    return told


def explain_view(document: Document) -> RenderableType:
    """Show why each line was chosen: its signals as they were then, its weight then and now."""
    head = name_value_table(
        [
            ("recall", document["id"]),
            ("query", one_line(document["query"])),
            (
                "made",
                f"{format_time(document['timestamp'])}, {document['label']}, "
                f"{document['ms']:.0f} ms",
            ),
            *describe_depth(document),
        ]
    )
    if document.get("why"):
        return Group(head, "", *_left_out_view(document["why"], document["weights"]))
    counted = document.get("weights", {})
    parts: list[RenderableType] = [head]
    for title, name in (("injected", "injected"), ("near misses", "near_misses")):
        parts += ["", safe_text(title, "bold")]
        parts += [line for row in document[name] for line in _ranked_row_view(row, counted)]
    credits = column_table("run", "line", "reward", "share", "change", right=["reward", "share"])
    for credit in document["credits"]:
        credits.add_row(
            safe_text(credit.get("run_id") or "-"),
            short_id(credit.get("item")),
            f"{credit.get('reward', 0):+.1f}",
            f"{credit.get('share', 0):.3f}",
            f"{credit.get('delta', 0):+.4f}",
        )
    if credits.row_count:
        parts += ["", credits]
    return Group(*parts)


def _ranked_row_view(row: Document, counted: Document) -> Sequence[RenderableType]:
    """Say what a line was and why it stood where it stood: each signal × what it counted."""
    said_then = one_line(row["text"] or HIDDEN, 300)
    head = Text.assemble((f"{row['rank']:>4} {row['score']:.4f}  ", "bold"), safe_text(said_then))
    place = f"{row['file']}:{row['line']}" if row["file"] else row["tier"]
    now = row.get("weight_now", row["weight"])
    weight = f"learned weight {row['weight']:+.3f}, now {now:+.3f}"
    note = f" · {row['note']}" if row.get("note") else ""
    whole = f"{short_id(row['id'])} · {place} · {weight}{note}"
    return (
        head,
        Padding(safe_text(whole, "cyan"), INDENT, expand=False),
        Padding(safe_text(_format_contributions(row, counted), "dim"), INDENT, expand=False),
    )


def _format_contributions(row: Document, counted: Document) -> str:
    """Write a score as its sum: what each signal added (its weight × its value), most first."""
    signals = row["signals"]
    parts = [
        f"{name} {value:.3f} ({counted[name]:g}×{signals[name]:.3f})"
        for name, value in row["contributions"].items()
    ]
    uncounted = [f"{name} {v:.3f}" for name, v in signals.items() if v and name not in counted]
    other = [f"other {row['other']:+.3f}"] if row["other"] else []
    return "  ".join([*parts, *uncounted, *other])


def _left_out_view(why: Document, counted_then: Document) -> Sequence[RenderableType]:
    """Say why a line was left out, then what is known of it from then and from now."""
    parts: list[RenderableType] = [
        safe_text(f"{why['id']}: {why['reason']}", "bold"),
        safe_text(why["said"]),
    ]
    if why["text"] is not None:
        parts.append(safe_text(one_line(why["text"], 300), "dim"))
        parts.append(safe_text(f"{why['file']}:{why['line']}", "cyan"))
    then, now, last = why["then"], why["now"], why["last_line"]
    if then:
        parts += [
            "",
            safe_text(f"journalled then: rank {then['rank']}, {then['score']:.4f}", "bold"),
        ]
        parts.append(
            Padding(safe_text(_format_contributions(then, counted_then)), INDENT, expand=False)
        )
    if now:
        where = f"rank {now['rank']} of {now['of']}, {now['score']:.4f}"
        parts += ["", safe_text(f"recomputed now: {where}", "bold")]
        parts.append(
            Padding(safe_text(_format_contributions(now, now["weights"])), INDENT, expand=False)
        )
    if last:
        where = f"rank {last['rank']}, {last['score']:.4f}, {short_id(last['id'])}"
        parts.append(safe_text(f"last line now: {where}", "bold"))
        parts.append(
            Padding(safe_text(_format_contributions(last, now["weights"])), INDENT, expand=False)
        )
        lacked = "  ".join(f"{name} {value:+.3f}" for name, value in last["lacked"].items())
        parts.append(
            Padding(safe_text(f"ahead by: {lacked or '-'}", "yellow"), INDENT, expand=False)
        )
    if why["words"]:
        words = why["words"]
        rows = [(name, format_value(words[name])) for name in ("query", "entry", "shared")]
        parts += ["", name_value_table(rows)]
    parts += [safe_text(f"! {line}", "yellow") for line in why["differences"]]
    return parts


def forget_view(document: Document) -> RenderableType:
    """Show the lines that go, or would go."""
    table = column_table("id", "who", "text", wide=["text"])
    for entry in document["entries"]:
        who = entry["speaker"] or entry["role"]
        table.add_row(
            escape_controls(entry["id"]), safe_text(who), safe_text(one_line(entry["content"]))
        )
    for fact in document["facts"]:
        table.add_row(escape_controls(fact["id"]), "fact", safe_text(one_line(fact["text"])))
    verb = "forgotten" if document["forgotten"] else "would be forgotten"
    return Group(table, safe_text(f"{table.row_count} {verb}", "dim"))


def settings_view(document: Document) -> RenderableType:
    """Show every key, its value, and where the value came from."""
    table = column_table("key", "value", "from", wide=["value"])
    for row in document["settings"]:
        is_default = row["from"] == "default"
        style = "dim" if is_default else ""
        value = row["value"] if isinstance(row["value"], str) else json.dumps(row["value"])
        table.add_row(safe_text(row["key"], style), safe_text(value, style), safe_text(row["from"]))
    return table


def done_view(document: Document) -> RenderableType:
    """Show what a command did, a name and a value a line."""
    return name_value_table(
        (name.replace("_", " "), format_value(value)) for name, value in document.items()
    )
