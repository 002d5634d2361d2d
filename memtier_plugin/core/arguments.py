"""Check the arguments of public calls by their annotations."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from datetime import datetime
from functools import cache, wraps
from inspect import isclass, isfunction, signature, unwrap
from itertools import chain
from math import isfinite
from types import SimpleNamespace, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    NamedTuple,
    ParamSpec,
    TypeVar,
    Union,
    Unpack,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from memtier_plugin.core.errors import MessageError
from memtier_plugin.core.records import Fact, FactDraft
from memtier_plugin.core.structs import NO_TEXT, built, check_fields, in_utc, reason

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_PLAIN: Final = (str, int, float, bool, datetime, type(None))
_INTEGER_BITS: Final = 63  # and a sign: what SQLite takes
_SEVERAL: Final = (Collection, Iterable, Sequence)


def check_arguments(method: Callable[P, R]) -> Callable[P, R]:
    """Check a public method's arguments, by its annotations and their bounds, before it runs.

    Annotations that msgspec cannot check (callables, iterators, paths) are passed over. The method
    raises MessageError, which names the argument, what it may be and what it is.
    """

    @wraps(method)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        kinds = _kinds(method)
        for name, value in chain(zip(kinds, args, strict=False), kwargs.items()):
            if (kind := kinds.get(name)) is not None:
                _check(name, value, kind)
        try:
            return method(*args, **kwargs)
        except UnicodeEncodeError as error:
            raise MessageError(f"a text holds what UTF-8 cannot: {error}") from error
        except TypeError as error:
            try:
                signature(method).bind(*args, **kwargs)
            except TypeError:
                raise MessageError(str(error)) from None
            raise

    return checked


@cache
def _kinds(method: Callable[..., Any]) -> dict[str, Any]:
    """Return the parameters of a method, each with its type, or None where it is not checked."""
    annotations = {n: hint for n, hint in method.__annotations__.items() if n != "return"}
    parameters = SimpleNamespace(__annotations__=annotations)
    hints = get_type_hints(parameters, unwrap(method).__globals__, include_extras=True)
    kinds = {name: _checkable(hints.get(name)) for name in signature(method).parameters}
    options = [hint for hint in hints.values() if get_origin(hint) is Unpack]
    for [keywords] in map(get_args, options):
        options_of = get_type_hints(keywords, include_extras=True)
        kinds |= {name: _checkable(hint) for name, hint in options_of.items()}
    return kinds


def check_methods(cls: type[T]) -> type[T]:
    """Check the arguments of every public method of a class; see `check_arguments`."""
    for name, method in [*vars(cls).items()]:
        if isfunction(method) and not name.startswith("_"):
            setattr(cls, name, check_arguments(method))
    return cls


def _checkable(kind: Any) -> Any:
    """Return a type with its bounds as msgspec reads them; None where it cannot be checked.

    What msgspec does not know becomes a predicate. An iterator can be read only once, so its items
    are left to the method.
    """
    parts = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    rest = [part for part in parts if part is not type(None)]
    if len(rest) == 1 and _is_predicate(rest[0]):
        return _Predicate.of(rest[0], optional=len(parts) > 1)
    fits = all(
        get_origin(part) is Annotated
        or is_dataclass(part)
        or part in _PLAIN
        or get_origin(part) is Literal
        for part in parts
    )
    if fits:
        return built(Union[*parts])
    classes = [get_origin(part) or part for part in rest]
    return (
        _Predicate(tuple(classes), (), len(parts) > len(rest))
        if all(map(isclass, classes))
        else None
    )


def _is_predicate(kind: Any) -> bool:
    if get_origin(kind) in (Callable, *_SEVERAL):
        return True
    return isclass(kind) and kind not in _PLAIN and not is_dataclass(kind) and kind is not Any


class _Predicate(NamedTuple):
    """A parameter that takes a function, an object of a class, or an iterable of certain items."""

    kind: Any
    items: tuple[type, ...]
    optional: bool

    @classmethod
    def of(cls, hint: Any, *, optional: bool) -> _Predicate:
        """Return the predicate of an annotation."""
        items = [part for item in get_args(hint) for part in get_args(item) or (item,)]
        kinds = [get_origin(item) or item for item in items]
        return cls(get_origin(hint) or hint, tuple(k for k in kinds if isclass(k)), optional)

    def problem(self, value: object) -> str:
        """Return what is wrong with a value; "" if nothing is."""
        if value is None and self.optional:
            return ""
        name = type(value).__name__
        if self.kind is Callable:
            return "" if callable(value) else f"expected a function, got {name}"
        if not isinstance(value, self.kind):
            kinds = self.kind if isinstance(self.kind, tuple) else (self.kind,)
            return f"expected {' or '.join(kind.__name__ for kind in kinds)}, got {name}"
        if self.kind not in _SEVERAL:
            return ""
        if isinstance(value, str | bytes | Mapping):
            return f"expected several {self._item_names()}, got {name}"
        if not self.items or isinstance(value, Iterator):
            return ""
        wrong = [item for item in value if not isinstance(item, self.items)]
        return f"expected {self._item_names()}, got {type(wrong[0]).__name__}" if wrong else ""

    def _item_names(self) -> str:
        return " or ".join(item.__name__ for item in self.items)


def check_fact(fact: Fact | FactDraft) -> None:
    """Check a fact that a caller gives: also that it rests on something, and is UTF-8.

    Raises:
        MessageError: as `check_fields`.
    """
    check_fields(fact)
    try:
        msgspec.json.encode(fact)
    except UnicodeEncodeError as error:
        raise MessageError(f"the fact holds what UTF-8 cannot: {error}") from None
    if not fact.sources:
        raise MessageError("sources: a fact rests on one source or more")
    if not isfinite(fact.confidence):
        raise MessageError(f"confidence: {fact.confidence} is no number")


def _check(name: str, value: object, kind: Any) -> None:
    if isinstance(kind, _Predicate):
        if problem := kind.problem(value):
            raise MessageError(f"{name}: {problem}")
        return
    if isinstance(value, int) and value.bit_length() > _INTEGER_BITS:
        raise MessageError(f"{name}: expected an integer of {_INTEGER_BITS + 1} bits at most")
    if isinstance(value, Mapping):  # msgspec would build a dataclass of it
        raise MessageError(f"{name}: no mapping fits here, got {type(value).__name__}")
    try:
        record = msgspec.convert(value, kind, builtin_types=NO_TEXT)
        if is_dataclass(record) and not isinstance(value, type(record)):
            # msgspec would build one of any object, where all fields have defaults.
            expected, given = type(record).__name__, type(value).__name__
            raise MessageError(f"{name}: expected {expected}, got {given}")
        if isinstance(value, datetime):
            in_utc(value)
    except msgspec.ValidationError as error:
        raise MessageError(f"{name}: {reason(error)}") from None
    except UnicodeEncodeError as error:
        raise MessageError(f"{name}: it holds what UTF-8 cannot: {error}") from None
    except OverflowError:
        raise MessageError(f"{name}: {value} is outside of the years 1 to 9999 UTC") from None
