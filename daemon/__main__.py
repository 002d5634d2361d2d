"""`python -m memtier_plugin.daemon`: run the jobs once or continuously, at low priority."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Final

from memtier_plugin.core.errors import MemTierError
from memtier_plugin.core.paths import resolve_home
from memtier_plugin.facts.consolidation import ConsolidationReport

from .jobs import JobRun, bring_in, list_jobs
from .scheduler import STOP_TIMEOUT, run_jobs, serve_projects

NICENESS: Final = 10

_log = logging.getLogger("memtier")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the daemon until SIGTERM or SIGINT; returns 0, or 1 after an error."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    # They log a line per request.
    for name in ("httpx", "httpx2", "openai"):
        logging.getLogger(name).setLevel(logging.WARNING)
    os.nice(NICENESS)
    stop = threading.Event()

    def end(_signal: int, _frame: FrameType | None) -> None:
        # A job can be killed at any point without loss, so it gets limited time to end.
        last = threading.Timer(STOP_TIMEOUT + 0.5, os._exit, [0])
        last.daemon = True
        last.start()
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    home = resolve_home(options.home)
    try:
        well = _run_jobs(home, options, stop)
    except MemTierError as error:
        _log.error("%s", error)
        return 1
    if not well and not options.once:
        _log.warning("stopped in the middle of a job; it is done again at the next start")
        logging.shutdown()
        os._exit(0)  # returning would wait for the job's thread
    return 0 if well or stop.is_set() else 1


def _run_jobs(home: Path, options: argparse.Namespace, stop: threading.Event) -> bool:
    if options.workspace is not None:  # started by a session, see `child.start_bringing_in`
        bring_in(home, options.project[0], options.agent, options.workspace)
        return True
    if options.held is not None:  # started by a server that holds the project's lock
        again = timedelta(seconds=options.again) if options.again else None
        return run_jobs(home, options.project[0], options.job, JobRun(stop, _log_report), again)
    return serve_projects(
        home,
        options.project or None,
        once=options.once,
        interval=options.interval,
        stop=stop,
        on_run=_log_report,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="memtier daemon", description=__doc__)
    parser.add_argument("--home", type=Path, help="the home (default: MEMTIER_HOME or ~/.memtier)")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--project", action="append", help="serve this project (repeatable)")
    which.add_argument("--all", action="store_true", help="serve every project (the default)")
    parser.add_argument("--once", action="store_true", help="do every job once and end")
    parser.add_argument("--interval", type=float, help="seconds, instead of what is configured")
    # Passed by `child.run_child`: the jobs of a project whose lock the parent holds.
    parser.add_argument("--held", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--job", action="append", choices=[*list_jobs()], help=argparse.SUPPRESS)
    parser.add_argument("--workspace", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--agent", default="main", help=argparse.SUPPRESS)
    parser.add_argument("--again", type=float, help=argparse.SUPPRESS)
    return parser


def _log_report(project: str, report: ConsolidationReport) -> None:
    if not report.read:
        return
    rejected = ", ".join(f"{number} {why}" for why, number in report.rejected.items())
    _log.info(
        "project %r: read %d entries, %d facts, %d promoted%s",
        project,
        report.read,
        report.facts,
        report.promoted,
        f"; rejected: {rejected}" if rejected else "",
    )
    if report.held_back:
        _log.warning("project %r: held back: %s", project, report.held_back)


if __name__ == "__main__":
    sys.exit(main())
