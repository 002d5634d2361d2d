"""The steps of a run in which a host's model searches store by store (Mem-T, section 3.1).

They are kept in this process alone.  A run begins with its prompt; where a host has no such hook,
after a silence.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from memtier_plugin.core.host import RunContext
from memtier_plugin.core.mutex import Mutex

_MOST_RUNS: Final = 500  # kept at once; the one without a search for longest goes first
_SILENCE: Final = 900.0  # seconds after which a session's next search begins a run


@dataclass(slots=True)
class SearchSteps:
    """One run: how many steps it took, and the ids of the lines that they showed."""

    run: str | None = None
    taken: int = 0
    shown: set[str] = field(default_factory=set)
    last: float = 0.0  # monotonic seconds
    turn: Mutex = field(default_factory=Mutex)  # of one search after another


_mutex: Final = Mutex()
_runs: Final[OrderedDict[tuple[str | None, ...], SearchSteps]] = OrderedDict()


def begin_run(context: RunContext) -> None:
    """Begin a run of a session, unless its prompt is only built again."""
    with _mutex:
        steps = _runs.get(_key(context))
        if steps is None or context.run_id is None or steps.run != context.run_id:
            _keep(context, SearchSteps(context.run_id))


def steps_of(context: RunContext) -> SearchSteps:
    """Return the steps of the run at hand; without a session each call is a run of its own."""
    if context.session_id is None:
        return SearchSteps()
    with _mutex:
        steps = _runs.pop(_key(context), None)
        if steps is None or _is_of_another_run(steps, context.run_id):
            steps = SearchSteps()
        steps.run = context.run_id or steps.run
        _keep(context, steps)
    return steps


def _keep(context: RunContext, steps: SearchSteps) -> None:
    steps.last = time.monotonic()
    _runs[_key(context)] = steps
    while len(_runs) > _MOST_RUNS:
        _runs.popitem(last=False)


def _is_of_another_run(steps: SearchSteps, run: str | None) -> bool:
    if time.monotonic() - steps.last > _SILENCE:
        return True
    return None not in (run, steps.run) and run != steps.run


def _key(context: RunContext) -> tuple[str | None, ...]:
    home = None if context.home is None else str(context.home)
    return home, context.project, context.agent_id, context.sender, context.session_id
