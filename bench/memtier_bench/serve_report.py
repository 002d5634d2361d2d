"""Render the report of `memtier bench serve`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memtier_bench.tables import Report, ReportTable, Section


def serve_view(report: Report) -> list[Section]:
    """Return a table for each measured part."""
    tls = "TLS" if report["tls"] else "no TLS (no openssl here)"
    head = (
        f"MemTier {report['version']} · {report['cores']} cores, load {report['load']:.1f} · {tls}"
    )
    part = report["tenants"]
    title = f"{part['tenants']:,} tenants on a resident, {part['clients']} clients at once"
    columns = ("tenants asked", "calls/s", "recall p50, p95, ms", "end_run p50, p95, ms")
    table = ReportTable((*columns, "errors", "memory, MB", "open files"), title=title)
    for row in part["phases"]:
        table.add_row(
            row["name"],
            f"{row['calls_per_s']:,.0f}",
            *(_percentiles(row[f"{name}_ms"]) for name in ("recall", "end_run")),
            str(sum(row["errors"].values())),
            *(f"{row[name]:,.0f}" if name in row else "-" for name in ("rss_mb", "files")),
        )
    sections: list[Section] = [head, table, f"lines of another tenant: {part['foreign']}"]
    sections += [
        f"{times} x {error}" for row in part["phases"] for error, times in row["errors"].items()
    ]
    if kill := report.get("kill"):
        sections += _kill(kill)
    return sections


def _kill(part: Mapping[str, Any]) -> list[Section]:
    title = f"{part['residents']} residents, {part['clients']} clients; one killed, "
    title += f"back after {part['away_s']:.0f} s"
    table = ReportTable(("", "recall", "end_run"), title=title)
    both = part["recall"], part["end_run"]
    table.add_row("calls, failed", *(f"{row['calls']:,}, {row['failed']}" for row in both))
    table.add_row("p50, p95 before, ms", *(_percentiles(row["before_ms"]) for row in both))
    table.add_row("p50, p95 from the kill on, ms", *(_percentiles(row["after_ms"]) for row in both))
    for label, name in (
        ("the longest from the kill on, s", "longest_s"),
        ("the last that failed, s after the kill", "last_failed_s"),
        ("all of its projects answered again, s after the kill", "again_s"),
    ):
        table.add_row(label, *(f"{row[name]:.2f}" for row in both))
    of = f"{part['projects_of_the_killed']} of {part['projects']} projects were the killed one's"
    runs = f"{part['acknowledged']:,} runs acknowledged, {part['lost']} lost, "
    runs += f"{part['doubled']} doubled"
    errors = [f"{times} x {error}" for row in both for error, times in row["errors"].items()]
    return [table, of, runs, *errors]


def _percentiles(values: Mapping[str, float]) -> str:
    return ", ".join(f"{values[name]:.1f}" for name in ("p50", "p95") if name in values)
