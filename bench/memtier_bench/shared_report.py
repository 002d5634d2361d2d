"""Render the report of `memtier bench shared`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from memtier_bench.tables import Report, ReportTable, Section


def shared_view(report: Report) -> list[Section]:
    """Return a table for each measured part."""
    head = f"{report['server']} · MemTier {report['version']} · {report['cores']} cores, "
    sections: list[Section] = [f"{head}load {report['load']:.1f} at the end"]
    if part := report.get("machines"):
        sections += _machines(part)
    if rows := report.get("appends"):
        sections.append(_appends(rows))
    if part := report.get("lag"):
        sections.append(_lag(part))
    if rows := report.get("catch-up"):
        sections.append(_catch_up(rows))
    return sections


def _machines(part: Mapping[str, Any]) -> Iterator[Section]:
    runs, recalls = part["runs"], part["recalls"]
    table = ReportTable(("", ""), title=f"{part['machines']} machines, {runs:,} runs of two lines")
    for label, value in (
        ("entries acknowledged", part["acknowledged"]),
        ("of them on the server when the last run ended", part["delivered_meanwhile"]),
        ("lost", part["lost"]),
        ("doubled", part["doubled"]),
        ("sessions, out of order", f"{part['sessions']}, {part['sessions_out_of_order']}"),
        ("files, different on a machine", f"{part['files']}, {part['files_different']}"),
        (
            "queries, with hits",
            f"{part['queries']}, {part['queries_with_hits']}",
        ),
        ("different on a machine", part["recalls_different"]),
        ("different after a rebuild", part["recalls_different_after_rebuild"]),
    ):
        table.add_row(label, str(value))
    table.add_row()
    worst = {name: max(row[name] for row in part["end_run_ms"]) for name in ("p50", "p95")}
    table.add_row("entries/s", f"{part['entries_per_s']:,.0f}")
    table.add_row(
        "end_run p50, p95 on the slowest machine, ms", f"{worst['p50']:.1f}, {worst['p95']:.1f}"
    )
    for label, name in (
        ("machine's processor per run, ms", "machine_cpu_ms_per_run"),
        ("server's processor per run, ms", "server_cpu_ms_per_run"),
        ("statements per run", "statements_per_run"),
    ):
        table.add_row(label, _figure(part[name]))
    for name, value in part["bytes_per_line"].items():
        table.add_row(f"bytes a line on the server, {name}", f"{value:,.0f}")
    yield table
    table = ReportTable(("", ""), title=f"{recalls['recalls']:,} recalls on a machine")
    for label, name in (
        ("server's processor per recall, ms", "server_cpu_ms"),
        ("statements of all", "statements"),
        ("server's processor per recall when its journal is delivered, ms", "delivery_cpu_ms"),
        ("statements of that, of all", "delivery_statements"),
        ("bytes of a recall in the journal", "journal_bytes"),
    ):
        table.add_row(label, _figure(recalls[name]))
    yield table


def _appends(rows: list[Mapping[str, Any]]) -> ReportTable:
    columns = ("writers, lines at a time", "lines/s", "append p50, ms", "p95")
    table = ReportTable((*columns, "server CPU/append, ms", "/line, ms"), title="Appends")
    for row in rows:
        table.add_row(
            f"{row['writers']}, {row['batch']}",
            f"{row['lines_per_s']:,.0f}",
            *(f"{row['append_ms'][name]:.1f}" for name in ("p50", "p95")),
            _figure(row["server_cpu_ms_per_append"]),
            _figure(row["server_cpu_ms_per_line"]),
        )
    return table


def _lag(part: Mapping[str, Any]) -> ReportTable:
    title = f"Acknowledged on a machine, in the index of another: {part['runs']} runs"
    table = ReportTable(("", ""), title=title)
    for name, value in part["lag_ms"].items():
        table.add_row(f"{name}, ms", f"{value:,.0f}")
    for label, name in (
        ("connections of a machine that follows", "connections_per_machine"),
        ("server's processor per idle machine, ms/s", "idle_cpu_ms_per_machine_second"),
        ("statements per idle machine and second", "idle_statements_per_machine_second"),
    ):
        table.add_row(label, _figure(part[name]))
    return table


def _catch_up(rows: list[Mapping[str, Any]]) -> ReportTable:
    columns = ("a new machine joins by", "indexed", "seconds", "CPU, s", "RSS, MB", "entries/s")
    more = ("server CPU/line, ms", "index, bytes/entry")
    table = ReportTable((*columns, *more), title="Catching up")
    for row in rows:
        table.add_row(
            f"{row['way']}, {row['entries']:,} entries",
            f"{row['indexed']:,}",
            f"{row['seconds']:.1f}",
            f"{row['cpu_seconds']:.1f}",
            f"{row['peak_rss_mb']:,}",
            f"{row['entries_per_s']:,.0f}",
            _figure(row["server_cpu_ms_per_line"]),
            f"{row['index_bytes_per_entry']:,.0f}",
        )
        if row["way"] == "snapshot":
            figures = ("seconds", "cpu_seconds", "peak_rss_mb")
            took = [row[f"snapshot_{name}"] for name in figures]
            size = f"its file, {row['snapshot_bytes'] / 1e6:,.0f} MB"
            table.add_row(size, "", f"{took[0]:.1f}", f"{took[1]:.1f}", f"{took[2]:,}", *[""] * 3)
            for label, different, among in (
                ("files", row["files_different"], row["files"]),
                ("recalls", row["recalls_different"], row["queries"]),
            ):
                table.add_row(f"{label} that differ, {different} of {among}", *[""] * 7)
    return table


def _figure(value: float | None) -> str:
    """Return a figure to three digits, and a dash if it could not be measured."""
    return "-" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
