"""Recognize prompts that ask to forget something.  Pure."""

from __future__ import annotations

from typing import Final

from memtier_plugin.core import lazy_regex as regex

_ASKS: Final = regex.compile(
    r"""(?xi)\b(?:forget|unlearn|delet(?:e|ing)|remov(?:e|ing)|eras(?:e|ing)|hide|wipe|clear|drop|discard
    |(?:do\s+not|don['’]?t|stop|no\s+longer)\s+(?:remember|keep|store)\w*
    |vergiss|vergesst|vergessen|lösch\w*|entfern\w*|streich\w*
    |oubli\w*|supprim\w*|efface\w*|retire[rz]?
    |olvid\w*|borr\w*|elimin\w*|quit[ae]\w*|dimentic\w*|cancell\w*|rimuov\w*
    |esque[cç]\w*|apag\w*|remov[ae]\w*|vergeet|verwijder\w*|wis
    |забудь\w*|забыть|удали\w*|сотри\w*)\b
    |忘记|忘掉|忘了|删除|刪除|删掉|忘れ|削除|消して|잊어|잊으|삭제|지워"""
)


def asks_to_forget(prompt: str) -> bool:
    """Return whether a prompt has a word by which people ask to forget, in any language known."""
    return bool(_ASKS.search(prompt))
