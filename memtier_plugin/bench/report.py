"""Showing what a benchmark measured as tables for a person; the JSON is the report itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def print_report(report: Mapping[str, Any], console: Console) -> None:
    """Print a report of `run_retrieval` or `run_scale`."""
    if report["dataset"] == "scale":
        _print_scale(report, console)
        return
    console.print(_summary(report))
    console.print(_ranking(report))
    if "ablation" in report:
        console.print(_ablation(report))


def _summary(report: Mapping[str, Any]) -> str:
    ingest, latency = report["ingest"], report["latency_ms"]
    rate = ingest["turns"] / max(ingest["seconds"], 1e-9)
    milliseconds = ", ".join(f"{name} {value:.1f}" for name, value in latency.items())
    lines = [
        " · ".join((report["dataset"], report["profile"], f"facts {report['facts']}")),
        f"{report['questions']} questions; {report['skipped']} without evidence were skipped",
        f"{report['unresolved']} evidence ids name no turn of their conversation",
        f"{ingest['turns']} turns ingested in {ingest['seconds']:.1f} s ({rate:.0f}/s)",
        f"recall {milliseconds} ms; peak memory {report['peak_rss_mb']:.0f} MB",
    ]
    if report["injected_recall"] is not None:
        lines.append(
            f"injected recall {_share(report['injected_recall'])} "
            f"at {report['injected_tokens']:.0f} tokens a block"
        )
    return "\n".join(lines)


def _ranking(report: Mapping[str, Any]) -> Table:
    table = _table("", *(f"@{k}" for k in report["recall"]), "MRR", "injected", "questions")
    for name in ("recall", "hit", "all"):
        table.add_row(name, *map(_share, report[name].values()), *_tail(report, name == "recall"))
    table.add_section()
    for name, row in report["by_category"].items():
        table.add_row(name, *map(_share, row["recall"].values()), *_tail(row, True))
    return table


def _tail(row: Mapping[str, Any], shown: bool) -> tuple[str, ...]:
    if not shown:
        return ("", "", "")
    return _share(row["mrr"]), _share(row["injected_recall"]), str(row["questions"])


def _ablation(report: Mapping[str, Any]) -> Table:
    table = _table("without", "was", "recall@1", "recall@10", "injected")
    for row in report["ablation"]:
        lost = row["difference"]
        table.add_row(
            row["without"].rpartition(".")[2],
            f"{row['was']:g}",
            _changed(row["recall"]["1"], lost["recall@1"]),
            _changed(row["recall"]["10"], lost["recall@10"]),
            _changed(row["injected_recall"], lost["injected_recall"]),
        )
    return table


def _print_scale(report: Mapping[str, Any], console: Console) -> None:
    console.print(
        f"scale · {report['agents']} agents · {report['recalls']} recalls in a fresh process at "
        f"each size · MemTier {report['version']}"
    )
    sizes = report["sizes"]
    table = _table("", *(f"{size['entries']:,} entries" for size in sizes))
    rows = {
        "ingest, turns/s": [
            s["ingest"]["turns"] / max(s["ingest"]["seconds"], 1e-9) for s in sizes
        ],
        "import memtier_plugin, ms": [s["import_ms"] for s in sizes],
        "open, ms": [s["open_ms"] for s in sizes],
        "first recall, ms": [s["first_recall_ms"] for s in sizes],
        f"recall {report['recalls']:,}, ms": [s["last_recall_ms"] for s in sizes],
        **{f"recall {p}, ms": [s["latency_ms"][p] for s in sizes] for p in ("p50", "p95", "p99")},
        "rank-bm25 full scan, ms": [s["bm25_scan_ms"] for s in sizes],
        "times faster than the scan": [s["faster_than_scan"] for s in sizes],
        "postings read, mean": [s["postings"]["mean"] for s in sizes],
        "postings read, most": [s["postings"]["max"] for s in sizes],
        "vectors read, mean": [s["vectors"]["mean"] for s in sizes],
        "vectors read, most": [s["vectors"]["max"] for s in sizes],
        "peak memory, MB": [s["peak_rss_mb"] for s in sizes],
    }
    for part in sizes[-1]["files_mb"]:
        rows[f"{part}, MB"] = [size["files_mb"].get(part, 0.0) for size in sizes]
    for name, values in rows.items():
        table.add_row(
            name, *(f"{value:,.0f}" if value >= 100 else f"{value:.1f}" for value in values)
        )
    console.print(table)


def _table(*columns: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE)
    for index, column in enumerate(columns):
        table.add_column(column, justify="right" if index else "left")
    return table


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _changed(value: float | None, change: float | None) -> str:
    return "-" if value is None or change is None else f"{value:.3f} ({change:+.3f})"
