"""Render the reports of `memtier bench gate-check` and `memtier bench learners`."""

from __future__ import annotations

from memtier_bench.gate_check import gate_check_rows
from memtier_bench.tables import Report, ReportTable, Section


def gate_check_view(report: Report) -> list[Section]:
    """Return the gate's refusals of harmful changes and of others."""
    head = (
        f"gate · {report['questions']} questions, {report['history']} of them of the history ·"
        f" {report['entries']} entries · {report['seconds']:.1f} s a check\n"
        f"before: {report['before']:.3f}, recall@10 of the data set's evidence"
        f" {report['recall']:.3f}"
    )
    columns = ("change", "drawn", "refused", "recall@10", "difference", "upper bound")
    table = ReportTable(columns)
    for row in gate_check_rows(report):
        table.add_row(*row)
    return [head, table]


def learners_view(report: Report) -> list[Section]:
    """Return the gains of both learners under each scale, and why a learner changed nothing."""
    sections: list[Section] = [f"learners · {report['dataset']}"]
    for scale, profile in report["profiles"].items():
        title = f"{scale}: {profile['questions']} questions, {profile['groups']} groups left out"
        columns = ("learner", "before", "after", "gain held out", "order changed")
        table = ReportTable(columns, title=title)
        notes = []
        for learner in profile["learners"]:
            table.add_row(
                learner["learner"],
                f"{learner['before']:.4f}",
                f"{learner['after']:.4f}",
                _gain(learner["gain"]),
                f"{learner['changed']:.0%}",
            )
            for group, gain in learner["by_group"].items():
                table.add_row(f"  {group}", "", "", _gain(gain), "")
            if len(seeds := learner["by_seed"]) > 1:
                notes.append(
                    f"{learner['learner']}: means over {len(seeds)} seeds, of which one gained from"
                    f" {min(seeds):+.4f} to {max(seeds):+.4f}"
                )
            notes += [f"{learner['learner']}: {trap['reason']}" for trap in learner["traps"]]
        sections += [table, *dict.fromkeys(notes)]
    return sections


def _gain(gain: list[float] | None) -> str:
    return f"{gain[0]:+.4f} [{gain[1]:+.4f}, {gain[2]:+.4f}]" if gain else "nothing learned"
