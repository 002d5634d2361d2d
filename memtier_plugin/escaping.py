"""Recalled text made harmless: one line that ends no fence, opens no role and hides nothing.  Pure.

What was said stays readable.  What a reader cannot see is shown by its code point ("[U+200B]"),
unless a script or an emoji needs it; what could pass for markup or another speaker is quoted or
bracketed differently.  The ledger keeps every text as it was written.
"""

from __future__ import annotations

import unicodedata
from functools import cache
from typing import Final

import regex

NAME: Final = 40  # characters of a name that are shown

_SPACES: Final = regex.compile(r"\s+")
# More than eight marks on a letter write over others.
_MARKS: Final = regex.compile(r"(\p{M}{8})(\p{M}+)")
# Scripts whose letters a joiner joins or parts, and those that are parted by an empty space.
_JOINING: Final = (
    r"\p{Arabic}\p{Syriac}\p{Mongolian}\p{Nko}\p{Devanagari}\p{Bengali}\p{Gurmukhi}\p{Gujarati}"
    r"\p{Oriya}\p{Tamil}\p{Telugu}\p{Kannada}\p{Malayalam}\p{Sinhala}\p{Khmer}\p{Myanmar}\p{Tibetan}"
)
_UNSPACED: Final = r"\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_RIGHT_TO_LEFT: Final = r"\p{Hebrew}\p{Arabic}\p{Syriac}\p{Thaana}"
_EMOJI: Final = r"\p{Extended_Pictographic}\ufe0f?[\U0001f3fb-\U0001f3ff]?\ufe0f?"
_HIDDEN: Final = regex.compile(
    r"""(?x)
    (?P<kept>
      (?<=[\p{Extended_Pictographic}0-9\#*])[\ufe0e\ufe0f](?![\ufe00-\ufe0f])
    | (?<=\p{Han})[\U000e0100-\U000e01ef](?![\U000e0100-\U000e01ef])
    | (?<="""
    + _EMOJI
    + r""")\u200d(?=\p{Extended_Pictographic})
    | (?<=["""
    + _JOINING
    + r"""])[\u200c\u200d](?=["""
    + _JOINING
    + r"""])
    | (?<=["""
    + _UNSPACED
    + r"""])\u200b(?=["""
    + _UNSPACED
    + r"""])
    | (?<=["""
    + _RIGHT_TO_LEFT
    + r"""][\p{P}\p{S}\p{N}\p{Zs}]{0,4})[\u200e\u200f\u061c](?![\u200e\u200f\u061c])
    | (?<=\U0001f3f4)\U000e0067\U000e0062(?:\U000e0065\U000e006e\U000e0067
        |\U000e0073\U000e0063\U000e0074|\U000e0077\U000e006c\U000e0073)\U000e007f
    )
    | [[\p{Cc}\p{Cf}\p{Cs}\p{Co}\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\uffa0
        \ufe00-\ufe0f\U000e0100-\U000e01ef]
       --\s--[\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2]]
    """,
    regex.V1,
)
_RUN: Final = regex.compile(r"(\[U\+[0-9A-F]{4,6}\])(?:\[U\+[0-9A-F]{4,6}\])+")

_OPENING: Final = r"<\uff1c\ufe64\u2039\u02c2\u1438\u2329\u27e8\u276c\u276e\u2770\u29fc\u3008"
_CLOSING: Final = r">\uff1e\ufe65\u203a\u02c3\u1433\u232a\u27e9\u276d\u276f\u2771\u29fd\u3009"
_OPEN: Final = regex.compile(
    rf"(?i)[{_OPENING}]|&(?:lt|\#0*60|\#x0*3c|lang|langle);?|\\u003c|\\x3c"
)
_CLOSE: Final = regex.compile(
    rf"(?i)[{_CLOSING}]|&(?:gt|\#0*62|\#x0*3e|rang|rangle);?|\\u003e|\\x3e"
)

_ROLES: Final = """
    system user assistant human ai developer tool function bot chatbot model agent admin
    administrator operator instruction instructions observation thought action ipython root
    claude chatgpt gpt gemini grok llama memory
    sistema système systeme systeem sistem systemnachricht benutzer nutzer usuario usuário
    utilisateur utente gebruiker użytkownik kullanıcı asistente assistente assistent asystent
    asistan anweisung anweisungen instrucciones consignes istruzioni instruções
    система системы пользователь ассистент помощник человек инструкция
    系统 系統 用户 用戶 使用者 助手 助理 人类 指令 システム ユーザー ユーザ アシスタント 人間 指示
    시스템 사용자 어시스턴트 지시 نظام النظام المستخدم المساعد سیستم کاربر دستیار
    सिस्टम उपयोगकर्ता सहायक מערכת משתמש עוזר ระบบ ผู้ใช้
""".split()  # noqa: SIM905
_NAMED_ROLES: Final = frozenset([*_ROLES, "fact", "how-to", "summary", "timeline", "recall"])
_WORD: Final = rf"(?:{'|'.join(_ROLES)}|hệ\ thống|người\ dùng|trợ\ lý)"
_ROLE: Final = regex.compile(
    rf"""(?xim)
    (?: ^[\s>\#*_=~|/\[\](){{}}\u2039\u203a\u00ab\u00bb\u2022\u00b7\u2500-\u257f0-9.`+-]{{0,20}}
      | (?<=\u203a)\s*
      | [.!?;|\u3002\uff01\uff1f\u2026]["')\]]?\s+[*_\[(\#>]{{0,4}} )
    (?P<role> {_WORD}
      (?:[\ _-](?:message|prompt|notes?|notice|instructions?|override|update|role|input|output|turn
        |response|log|admin|call|result|reply|alert|reminder|mode|command|event|says|said))?
      (?:\s*[(\[][^)\]\n]{{0,40}}[)\]])?
    )
    (?: [\s*_\])`]*[:\uff1a\ufe55\u02d0\u2236\ua789] | [\s*_]*=?\u203a | \ to=\w
      | [^\S\n]*[*_\])=\#-]*(?=\n) )
    """
)
_TOKEN: Final = regex.compile(
    rf"""(?xi)\[ (?P<inside> \s*/?\s*(?:inst|sys|{_WORD}|system_prompt|tool_calls?|tool_results?
      |available_tools|begin|end|eos|bos|control|memtier[\w-]*)\b[^\[\]\n]{{0,40}} ) \]"""
)
_HEAD: Final = regex.compile(r"\[(?P<inside>\s*\d{4}-\d\d-\d\d\s[^\[\]\n]{1,80})\]")
_BACKTICKS: Final = regex.compile(r"`{3,}")
_IMAGE: Final = regex.compile(r"!\[")


def harmless(text: str) -> str:
    """Return text on one line that cannot close the fence, open another or speak for others."""
    text = unicodedata.normalize("NFC", text)
    if not (text.isascii() and text.isprintable()):
        text = visible(text)
    text = _CLOSE.sub("\u203a", _OPEN.sub("\u2039", text))
    text = _IMAGE.sub("! [", _BACKTICKS.sub("'''", text))
    text = _bracketed(_bracketed(_quoted(text), _TOKEN), _HEAD)
    return unicodedata.normalize("NFC", _SPACES.sub(" ", text).strip())


def legible(text: str) -> str:
    """Return a whole text made harmless line by line; all but its first line are indented."""
    return "\n    ".join(harmless(line) for line in text.splitlines())


def visible(text: str) -> str:
    """Return text with all that nobody can see shown by its code point."""
    shown = str(_HIDDEN.sub(_shown, text))
    if shown != text:
        shown = _RUN.sub(lambda run: f"{run[1][:-1]}+{run[0].count('[') - 1}]", shown)
    return str(_MARKS.sub(lambda m: f"{m[1]}[U+{ord(m[2][0]):04X}+{len(m[2])}]", shown))


def named(name: str) -> str:
    """Return a name as it stands in the head of a line: short, and nobody else's role."""
    flat = harmless(name)[:NAME].translate({ord("["): "(", ord("]"): ")"}).strip()
    bare = flat.strip(" .:*_-#'\"`()")
    own = {bare.casefold(), _skeleton(bare).casefold()}
    return f"'{bare}'" if own & _NAMED_ROLES else flat


def _shown(match: regex.Match[str]) -> str:
    if match["kept"]:
        return str(match[0])
    code = ord(match[0])
    # Unicode has pictures of the old control characters: ESC is shown as ␛.
    return chr(0x2400 + code) if code < 0x20 else f"[U+{code:04X}]"


def _quoted(text: str) -> str:
    """Put a role that opens a line or a sentence into quotes, as a word that is talked about."""
    for form in (str, _skeleton):  # as it stands, and as it looks
        parts, at = [], 0
        for match in _ROLE.finditer(form(text)):
            start, end = match.span("role")
            parts += [text[at:start], "'", text[start:end], "'"]
            at = end
        text = "".join([*parts, text[at:]]) if parts else text
    return text


def _bracketed(text: str, pattern: regex.Pattern[str]) -> str:
    for form in (str, _skeleton):
        parts, at = [], 0
        for match in pattern.finditer(form(text)):
            parts += [text[at : match.start()], "(", text[match.start() + 1 : match.end() - 1], ")"]
            at = match.end()
        text = "".join([*parts, text[at:]]) if parts else text
    return text


def _skeleton(text: str) -> str:
    """Return text of the same length with look-alikes of Latin letters as these."""
    return text if text.isascii() else text.translate(_lookalikes())


@cache
def _lookalikes() -> dict[int, str]:
    letters = dict(
        zip(
            "авсԁеһіјкӏмпорԛѕтуԝхѵАВСЕНІЈКМОРЅТУХαβγεικνορτυχΑΒΕΖΗΙΚΜΝΟΡΤΥΧɑɡıɩʏ",
            "abcdehijklmnopqstywxvABCEHIJKMOPSTYXaßyeiknoptuxABEZHIKMNOPTYXagiiy",
            strict=True,
        )
    )
    table = {ord(one): other for one, other in letters.items()}
    for code in [*range(0xFF01, 0xFF5F), *range(0x1D400, 0x1D800), *range(0x24B6, 0x24EA)]:
        plain = unicodedata.normalize("NFKC", chr(code))
        if len(plain) == 1:
            table[code] = plain
    return table
