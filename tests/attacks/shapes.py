"""Forty texts that, repeated, have made some pattern or parser look at all the rest again."""

from __future__ import annotations

from typing import Final

SHAPES: Final = (
    *("a", "A", "1", "\n", " ", "a@", "a.b@", "-", "_", "=", "é", "世", "😀", "\u200b"),
    *("[", "](", "(", "<a", "<!--", "{", '{"a":', '"', "“", "`", "```\n", "> ", "|a|\n", "a,b\n"),
    *("http://a/", "password is ", "密码是a", "Ann: hi\n", "From: a\n", "because ", "2026-01-01 "),
    *("last week ", "Aa1_", "4111 1111 ", "[Tool output] ", '<memtier-memory recall="x">\n'),
)
