"""Small cases that are one test together: what pytest does around a test takes longer than they."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from inspect import signature
from typing import Any

import pytest


def each_case(
    names: str | Sequence[str],
    cases: Iterable[Any],
    ids: Sequence[str] | Callable[[Any], object] | None = None,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Do as `pytest.mark.parametrize`, with all cases in one test that reports each failure.

    For cases that leave nothing behind: they share their fixtures.
    """
    keys = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    table = [_row(case, len(keys)) for case in cases]
    assert table, "no case would be no test"

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @wraps(test)
        def run(**fixtures: Any) -> None:
            failures = []
            for number, (label, values) in enumerate(table):
                try:
                    test(**dict(zip(keys, values, strict=True)), **fixtures)
                except (Exception, pytest.fail.Exception) as error:
                    if isinstance(ids, Sequence):
                        label = ids[number]
                    elif label is None:
                        label = ", ".join(map(str, map(ids or repr, values)))
                    shown = pytest.ExceptionInfo.from_exception(error).getrepr(style="short")
                    failures.append(f"case {label}:\n{shown}")
            if failures:
                count = f"{len(failures)} of {len(table)} cases failed"
                pytest.fail("\n\n".join([count, *failures]), pytrace=False)

        declared = signature(test)
        others = [item for name, item in declared.parameters.items() if name not in keys]
        run.__signature__ = declared.replace(parameters=others)  # type: ignore[attr-defined]
        return run

    return decorate


def _row(case: Any, width: int) -> tuple[str | None, Sequence[Any]]:
    """Return the name of a case, if it has one, and its values."""
    if isinstance(case, type(pytest.param())):
        assert not case.marks, "a case that is marked is a test of its own"
        return case.id and str(case.id), case.values
    return None, (case,) if width == 1 else case
