"""Public records that check themselves, so that a wrong field is refused where it is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from typing import Any, TypeVar

from memtier_plugin.core.errors import MessageError

T = TypeVar("T")


def strict_names(cls: type[T]) -> type[T]:
    """Let a dataclass refuse unknown names, and missing ones, with `MessageError`."""
    make: Callable[..., None] = cls.__init__

    @wraps(make)
    def named(self: T, *args: Any, **kwargs: Any) -> None:
        try:
            make(self, *args, **kwargs)
        except TypeError as error:
            names = ", ".join(field.name for field in fields(cls))  # type: ignore[arg-type]
            raise MessageError(f"{error}; {cls.__name__} has {names}") from None

    cls.__init__ = named  # type: ignore[method-assign,assignment]
    return cls


def self_checking(cls: type[T]) -> type[T]:
    """Let a dataclass also refuse values of other types, with `MessageError`."""
    make: Callable[..., None] = strict_names(cls).__init__

    @wraps(make)
    def checked(self: T, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        from memtier_plugin.core import codecs  # here: hosts import the records without msgspec

        codecs.check_fields(self)

    cls.__init__ = checked  # type: ignore[method-assign,assignment]
    return cls
