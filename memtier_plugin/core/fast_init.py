"""Make the records of which each recall builds hundreds in a third of the time.  Pure.

The constructor of a frozen dataclass sets each field by `object.__setattr__`, which looks the field
up in every base class first.  The descriptors of its slots set the same without a search.
"""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any, TypeVar

T = TypeVar("T")


def fast_init(cls: type[T]) -> type[T]:
    """Give a frozen dataclass with slots a constructor that sets the slots themselves.

    It takes what the dataclass's own one takes, and calls `__post_init__` likewise.
    """
    scope: dict[str, Any] = {"_MISSING": MISSING}
    parameters = {True: ["*"], False: ["self"]}  # by whether they are keywords alone
    body = []
    for field in fields(cls):  # type: ignore[arg-type]
        name, value = field.name, field.name
        scope[f"_set_{name}"] = getattr(cls, name).__set__
        if field.default is not MISSING:
            scope[f"_default_{name}"] = field.default
            parameters[bool(field.kw_only)].append(f"{name}=_default_{name}")
        elif field.default_factory is not MISSING:
            scope[f"_make_{name}"] = field.default_factory
            parameters[bool(field.kw_only)].append(f"{name}=_MISSING")
            value = f"_make_{name}() if {name} is _MISSING else {name}"
        else:
            parameters[bool(field.kw_only)].append(name)
        body.append(f"_set_{name}(self, {value})")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    keywords = parameters[True] if len(parameters[True]) > 1 else []
    header = f"def __init__({', '.join([*parameters[False], *keywords])}):\n    "
    exec(header + "\n    ".join(body), scope)
    made = scope["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    made.__annotations__ = cls.__init__.__annotations__
    cls.__init__ = made  # type: ignore[method-assign]
    return cls
