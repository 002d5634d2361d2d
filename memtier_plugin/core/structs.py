"""Base classes of records, and checks of their fields and of the arguments of public calls."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import Field, field, fields, is_dataclass, make_dataclass
from datetime import UTC, datetime
from functools import cache, wraps
from inspect import isclass, isfunction, signature, unwrap
from itertools import chain
from types import NoneType, SimpleNamespace, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    NamedTuple,
    ParamSpec,
    Self,
    TypeVar,
    Union,
    Unpack,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
from msgspec import NODEFAULT, Meta

from memtier_plugin.core.concurrency import Mutex
from memtier_plugin.core.errors import MessageError
from memtier_plugin.core.formats import aware, from_iso, parse_json_text, to_iso

# -- Bounds of numbers in public calls, as annotations that `check_arguments` reads

Count = Annotated[int, Meta(ge=1, le=2**63 - 1)]
Lines = Annotated[int, Meta(ge=1, le=1000)]
Tokens = Annotated[int, Meta(ge=16, le=100_000)]
Milliseconds = Annotated[float, Meta(ge=0, le=86_400_000)]  # one day


# -- Base classes of records; their fields are decoded and checked here
#
# Records are msgspec structs, which decode the lines that MemTier writes directly. Lines that
# msgspec rejects (lone surrogates, other spellings of a time) are parsed by the standard library
# and converted, with the same type checks.

T = TypeVar("T")

replace_fields: Final = msgspec.structs.replace  # no type checks; the values are checked already
MOST: Final = 2**63 - 1  # the largest integer that SQLite holds
NO_TEXT: Final = (datetime,)  # only JSON decoding turns a string into a time
_SCALARS: Final = frozenset({str, int, float, bool, NoneType})  # as in JSON
_UNBOUNDED: Final = _SCALARS - {int}
_building: Final = Mutex()


class _DataclassFields:
    """Makes `dataclasses.replace`, `fields` and `asdict` work on records."""

    def __get__(self, record: object, cls: type[msgspec.Struct]) -> dict[str, Field[Any]]:
        return _dataclass_fields(cls)


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A frozen record with a JSON form.

    Reading ignores unknown fields, written by a newer MemTier; fields that an older one did not
    write take their defaults.
    """

    SPARSE = frozenset[str]()  # fields omitted when they have their default
    NULLS = cast("frozenset[str] | None", None)  # the only fields written as null
    __dataclass_fields__ = _DataclassFields()

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form, keys in the order of the fields."""
        left_out = _left_out(self.__class__)
        return {
            name: value
            if value.__class__ in _SCALARS
            else to_iso(value)
            if value.__class__ is datetime
            else json_form(value)
            for name in self.__struct_fields__
            if (value := getattr(self, name)) != left_out.get(name, NODEFAULT)
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Self:
        """Read the JSON form.

        Raises:
            KeyError: a field is missing.
            ValueError: a field has the wrong type; names it.
        """
        return convert(record, cls)


class Tagged(msgspec.StructMeta):
    """Exposes each class's tag as ``KIND``."""

    def __init__(cls, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args)
        if tag := kwargs.get("tag"):
            cls.KIND = tag


class _Strict(msgspec.StructMeta):
    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().__call__(*args, **kwargs)
        except TypeError as error:
            reason, names = str(error), ", ".join(cls.__struct_fields__)
            raise MessageError(
                f"{reason[:1].lower()}{reason[1:]}; {cls.__name__} has {names}"
            ) from None


class _Checked(_Strict):
    # Not in `__post_init__`, which msgspec also calls for values that it has checked.
    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        record = super().__call__(*args, **kwargs)
        check_fields(record)
        return record


class GivenRecord(Record, frozen=True, metaclass=_Strict):
    """A record built by callers: unknown and missing names raise MessageError."""


class CheckedRecord(GivenRecord, frozen=True, metaclass=_Checked):
    """A record built by callers, whose values are type-checked too."""


@cache
def _left_out(cls: type[Record]) -> Mapping[str, object]:
    """Return the fields that the JSON form omits at their default, with the default."""
    names, defaults = cls.__struct_fields__, cls.__struct_defaults__
    optional = dict(zip(names[len(names) - len(defaults) :], defaults, strict=True))
    nulls = names if cls.NULLS is None else cls.NULLS
    return {
        name: default
        for name, default in optional.items()
        if name in cls.SPARSE or (default is None and name not in nulls)
    }


def json_form(value: object) -> Any:
    """Return a record's value in its JSON form."""
    if isinstance(value, Record):
        return value.to_json()
    if isinstance(value, tuple | list):
        return [item if item.__class__ in _SCALARS else json_form(item) for item in value]
    return to_iso(value) if isinstance(value, datetime) else value


def convert(value: object, cls: type[T]) -> T:
    """Return JSON data as a typed object.

    Raises:
        KeyError: a field is missing.
        ValueError: a field has the wrong type; names it.
    """
    kind: Any = cls
    try:
        typed: T = msgspec.convert(value, built(kind))
        return typed
    except msgspec.ValidationError as error:
        problem = reason(error)
        _, lacks, name = problem.partition("missing required field ")
        raise (KeyError(name) if lacks else ValueError(problem)) from None


def decode(line: bytes, cls: type[T]) -> T | None:
    """Decode a JSON document in one step; None where `parse_json` must read it first."""
    try:
        kind: Any = cls
        record: T = _decoder(kind).decode(line)
        return record
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def parse_json(line: bytes | str) -> Any:
    """Parse a JSON document.

    Raises:
        ValueError: it is not JSON.
    """
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass  # lone surrogates, NaN, numbers beyond 64 bits
    return parse_json_text(line)


def check_fields(record: object) -> None:
    """Check the types of all fields of a record that a caller has filled.

    Raises:
        MessageError: names the field, the expected type and the actual one.
    """
    cls: Any = type(record)
    try:
        msgspec.convert(_plain(record), built(cls), builtin_types=NO_TEXT)
    except (msgspec.ValidationError, TypeError) as error:
        raise MessageError(reason(error)) from None
    except UnicodeEncodeError as error:  # from a text where another type is expected
        raise MessageError(f"{cls.__name__}: it holds what UTF-8 cannot: {error}") from None
    except RecursionError:
        raise MessageError(f"{cls.__name__}: nested too deeply") from None
    except OverflowError:
        raise MessageError(f"{cls.__name__}: a time outside of the years 1 to 9999 UTC") from None


@cache
def built(kind: Any) -> Any:
    """Return a type after msgspec has built its decoder, one thread at a time.

    msgspec 0.22 crashes (SIGSEGV) on a class whose decoder another thread is building.
    """
    with _building:
        msgspec.json.Decoder(kind)
    return kind


def in_utc(moment: datetime) -> datetime:
    """Return a time in UTC; a naive one is taken as UTC.

    Raises:
        OverflowError: it is outside of the years 1 to 9999.
    """
    return (aware(moment) or moment).astimezone(UTC)


def reason(error: Exception) -> str:
    """Return msgspec's message, beginning with the field."""
    text = str(error).replace("| null", "or None").replace("`null`", "None")
    text = text.replace("`", "").replace("Expected", "expected")
    message, at, path = text.partition(" - at $")
    return f"{path.lstrip('.')}: {message}" if at and path else message


@cache
def _decoder(cls: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(built(cls))


def _plain(value: object) -> object:
    """Return records as dictionaries, since msgspec trusts instances unchecked."""
    if isinstance(value, msgspec.Struct):
        held = {name: getattr(value, name) for name in value.__struct_fields__}
        return {
            n: v if v.__class__ in _UNBOUNDED or v == () else _plain(v) for n, v in held.items()
        }
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, int) and abs(value) > MOST:
        raise MessageError("a number is out of range: beyond 64 bits")
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return in_utc(value) if isinstance(value, datetime) else value


@cache
def _dataclass_fields(cls: type[msgspec.Struct]) -> dict[str, Field[Any]]:
    names, defaults = cls.__struct_fields__, cls.__struct_defaults__
    declared = {name: field() for name in names}  # one type per field, since they are renamed below
    for name, default in zip(names[len(names) - len(defaults) :], defaults, strict=True):
        if factory := getattr(default, "factory", None):
            declared[name] = field(default_factory=factory)
        elif default is not NODEFAULT:
            declared[name] = field(default=default)
    made: Any = make_dataclass(
        cls.__name__,
        [(name, Any, each) for name, each in declared.items()],
        init=False, repr=False, eq=False, kw_only=True,
    )  # fmt: skip
    return dict(made.__dataclass_fields__)


# -- Check the arguments of public calls by their annotations
#
# All entry points check here: `check_arguments` for Python calls, `read_arguments` for JSON calls.

P = ParamSpec("P")
R = TypeVar("R")

_PLAIN: Final = (str, int, float, bool, datetime, type(None))
_BOUNDED: Final = (int, datetime)  # their own instances may be out of range
_TIMES: Final = (datetime, datetime | None)
_SEVERAL: Final = (Collection, Iterable, Sequence)


def check_arguments(method: Callable[P, R]) -> Callable[P, R]:
    """Make a public method check its arguments against its annotations and their bounds.

    Annotations that msgspec cannot check (callables, iterators, paths) are skipped. The method
    raises MessageError, which names the argument, the expected type and the actual one.
    """

    @wraps(method)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        kinds = _kinds(method)
        for name, value in chain(zip(kinds, args, strict=False), kwargs.items()):
            kind = kinds.get(name)
            if kind is not None and (value.__class__ is not kind or kind in _BOUNDED):
                _check(name, value, kind)
        try:
            return method(*args, **kwargs)
        except UnicodeEncodeError as error:
            raise MessageError(f"a text cannot be encoded as UTF-8: {error}") from error
        except TypeError as error:
            try:
                signature(method).bind(*args, **kwargs)
            except TypeError:
                raise MessageError(str(error)) from None
            raise

    return checked


def read_arguments(
    function: Callable[..., Any],
    arguments: Mapping[str, Any],
    *,
    bound: Collection[str] = ("self",),
    lax: bool = False,
) -> dict[str, Any]:
    """Return the arguments of a JSON call, checked as by `check_arguments`; times are parsed.

    Args:
        bound: parameters that the caller does not supply.
        lax: accept a model's call: unknown arguments are dropped, and "5" is a number.

    Raises:
        MessageError: names the argument, the expected type and the actual one.
    """
    called = signature(function)
    kinds = {
        name: kind
        for name, kind in _kinds(getattr(function, "__func__", function)).items()
        if name not in bound
    }
    if lax:
        arguments = {name: value for name, value in arguments.items() if name in kinds}
    elif unexpected := arguments.keys() - kinds.keys():
        raise MessageError(f"got an unexpected keyword argument {min(unexpected)!r}")
    try:
        called.bind(**{name: None for name in bound if name in called.parameters}, **arguments)
    except TypeError as error:
        raise MessageError(str(error)) from None
    return {name: _read(name, value, kinds[name], lax) for name, value in arguments.items()}


def _read(name: str, value: Any, kind: Any, lax: bool) -> Any:
    if isinstance(value, str) and kind in _TIMES:
        try:
            return from_iso(value)
        except ValueError as error:
            raise MessageError(f"{name} is not a time: {error}") from None
    return value if kind is None else _check(name, value, kind, strict=not lax)


@cache
def _kinds(method: Callable[..., Any]) -> dict[str, Any]:
    """Return the type of each parameter of a method; None if it is not checked."""
    annotations = {n: hint for n, hint in method.__annotations__.items() if n != "return"}
    parameters = SimpleNamespace(__annotations__=annotations)
    hints = get_type_hints(parameters, unwrap(method).__globals__, include_extras=True)
    kinds = {
        name: _checkable(hints.get(name))
        for name, parameter in signature(method).parameters.items()
        if parameter.kind is not parameter.VAR_KEYWORD
    }
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
    """Return a bounded type as msgspec reads it; None if it cannot be checked.

    A type unknown to msgspec becomes a predicate. An iterator can be read only once, so checking
    its items is left to the method.
    """
    alternatives = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    kinds = [alternative for alternative in alternatives if alternative is not type(None)]
    if len(kinds) == 1 and _is_predicate(kinds[0]):
        return _Predicate.of(kinds[0], optional=len(alternatives) > 1)
    fits = all(
        get_origin(alternative) is Annotated
        or is_dataclass(alternative)
        or alternative in _PLAIN
        or get_origin(alternative) is Literal
        for alternative in alternatives
    )
    if fits:
        return built(Union[*alternatives])
    classes = [get_origin(alternative) or alternative for alternative in kinds]
    return (
        _Predicate(tuple(classes), (), len(alternatives) > len(kinds))
        if all(map(isclass, classes))
        else None
    )


def _is_predicate(kind: Any) -> bool:
    if get_origin(kind) in (Callable, *_SEVERAL):
        return True
    return isclass(kind) and kind not in _PLAIN and not is_dataclass(kind) and kind is not Any


class _Predicate(NamedTuple):
    """A parameter that takes a function, an instance of a class, or an iterable of such."""

    kind: Any
    items: tuple[type, ...]
    optional: bool

    @classmethod
    def of(cls, hint: Any, *, optional: bool) -> _Predicate:
        """Return the predicate of an annotation."""
        items = [inner for item in get_args(hint) for inner in get_args(item) or (item,)]
        kinds = [get_origin(item) or item for item in items]
        return cls(get_origin(hint) or hint, tuple(k for k in kinds if isclass(k)), optional)

    def problem(self, value: object) -> str:
        """Return what is wrong with a value; "" if nothing."""
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


def _check(name: str, value: object, kind: Any, *, strict: bool = True) -> Any:
    """Return a value checked against a type; unless ``strict``, numeric strings are converted."""
    if isinstance(kind, _Predicate):
        if problem := kind.problem(value):
            raise MessageError(f"{name}: {problem}")
        return value
    if isinstance(value, int) and abs(value) > MOST:
        raise MessageError(f"{name}: expected an integer of 64 bits at most")
    if isinstance(value, Mapping):  # msgspec would build a dataclass from it
        raise MessageError(f"{name}: a mapping is not accepted here, got {type(value).__name__}")
    try:
        typed = msgspec.convert(value, kind, builtin_types=NO_TEXT, strict=strict)
        if not isinstance(value, type(typed)) and is_dataclass(typed):
            # msgspec would build one from any object if all fields have defaults.
            expected, actual = type(typed).__name__, type(value).__name__
            raise MessageError(f"{name}: expected {expected}, got {actual}")
        if isinstance(value, datetime):
            in_utc(value)
        return typed
    except msgspec.ValidationError as error:
        choices = [
            alternative
            for alternative in (kind, *get_args(kind))
            if get_origin(alternative) is Literal
        ]
        if choices and isinstance(value, str):
            expected = " or ".join(map(str, get_args(choices[0])))
            raise MessageError(f"{name}: expected {expected}, got {value!r:.60}") from None
        raise MessageError(f"{name}: {reason(error)}") from None
    except UnicodeEncodeError as error:
        raise MessageError(f"{name}: it holds what UTF-8 cannot: {error}") from None
    except OverflowError:
        raise MessageError(f"{name}: {value} is outside of the years 1 to 9999 UTC") from None
