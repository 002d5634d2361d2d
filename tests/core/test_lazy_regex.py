"""Patterns that are compiled when first used."""

from __future__ import annotations

import pytest

from memtier_plugin.core import lazy_regex
from tests.processes import run_python


def test_a_pattern_is_the_compiled_one() -> None:
    """Whatever is asked of a pattern first, it answers as the package's own does."""
    flags = lazy_regex.IGNORECASE
    for name in ("search", "match", "fullmatch", "findall", "sub"):
        arguments = ("-", "Aa b") if name == "sub" else ("Aa b",)
        got = getattr(lazy_regex.compile(r"(\p{Lu})", flags), name)(*arguments)
        assert str(got) == str(getattr(lazy_regex, name)(r"(\p{Lu})", *arguments, flags=flags))
    assert lazy_regex.compile("(a)(?P<b>b)").groupindex == {"b": 2}
    with pytest.raises(AttributeError):
        _ = lazy_regex.compile("a").nothing  # type: ignore[attr-defined]


def test_a_start_compiles_none_of_what_it_does_not_use() -> None:
    """A resident that starts compiles few of the product's patterns."""
    code = """
        import regex
        compiled, compile = [], regex.compile
        regex.compile = lambda *a, **named: compiled.append(a) or compile(*a, **named)
        from memtier_plugin.server import rpc
        print(len(compiled))
    """
    assert int(run_python(code)) < 20
