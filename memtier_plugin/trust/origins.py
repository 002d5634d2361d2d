"""Rank the origins of text by trust, and hold back facts of weak origin. Pure.

Facts wait for review when they rest on tool output, external text, another agent's words, or on
words that were written after reading such text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from typing import Final

from memtier_plugin.core import lazy_regex as regex
from memtier_plugin.core.records import Entry, Fact, FactDraft, Origin

ORIGINS: Final[Sequence[Origin]] = ("user", "assistant", "tool", "external", "system")  # to weak
MAX_DAILY_CREDIT: Final = (
    0.3  # what one item's weight may gain, or lose, in a day through one agent
)
REVIEW_REASONS: Final = {
    "outside": "rests on tool or external text",
    "later": "was said by the assistant alone, after external text in its session",
    "agent": "was said by another agent",
    "order": "reads like an order to the agent",
    "unsaid": "is in none of the user's own words of this session",
}

_SECRET: Final = (
    r"(?:passw\w+|passphrase|secret|token|api\W?key|private\W?key|ssh\W?key|credential|cookie|env\b"
    r"|environment\W+variable|conversation|transcript|chat\W+(?:log|history)|memor(?:y|ies)|\.env"
    r"|passwort|passwörter|kennw\w+|zugangsdaten|contraseñ\w+|credenciales|mots?\W+de\W+passe"
    r"|парол\w+|密码|密碼|パスワード|비밀번호|senha)"
)
# Not what people say of themselves, but what somebody says who wants to be obeyed.
_ORDERS: Final = (
    r"\b(?:ignore|disregard|forget|override|bypass|drop|discard)\b.{0,30}\b(?:previous|prior|above"
    r"|earlier|all|any|your|these|system|safety)\b.{0,20}\b(?:instructions?|prompts?|rules"
    r"|guidelines|guardrails|directives|restrictions|polic(?:y|ies))",
    r"\byou\s+are\s+now\b(?!\s+(?:in|at|on|able|done|free|logged|connected|using|running)\b)",
    r"\b(?:do\s+not|don['’]?t|never|without)\s+(?:ever\s+)?(?:tell|telling|inform\w*|alert\w*|warn\w*"
    r"|mention\w*|ask\w*|reveal\w*)\b.{0,20}\bthe\s+(?:user|human|owner)",
    r"\b(?:send|forward|post|upload|e-?mail|leak|exfiltrate|transmit|append|copy|share|bcc|submit"
    rf"|dump|include|print|paste|reveal|output)\b.{{0,60}}{_SECRET}.{{0,60}}(?:@|https?:|\bftp"
    r"|\bto\s+\S+\.\w{2,}|webhook|\bin\s+(?:every|each|all)\b|pastebin)",
    r"\b(?:schick\w*|send\w*|env[ií]\w*|reenví\w*|envoi\w*|envoy\w*|transf[eé]r\w*|отправ\w*"
    rf"|отсыла\w*|перешл\w*|invia\w*)\b.{{0,60}}{_SECRET}.{{0,60}}(?:@|https?:)",
    r"(?:发送|發送|转发|上传|送信|보내).{0,40}(?:https?:|@)",
    rf"{_SECRET}.{{0,40}}(?:发送|發送|转发|上传|送信|送って|보내)",
    r"\b(?:curl|wget)\b[^|\n]{0,160}\|\s*(?:sudo\s+)?(?:ba|z|da)?sh\b|\brm\s+-[rf]{2}\s+[/~]",
    r"ignorier\w*\b.{0,40}(?:anweisung|regel|instruktion|vorgabe)",
    r"(?:ignor[ae]\w*|olvida\w*)\b.{0,40}(?:instrucciones|reglas|instruções|regras|istruzioni|regole)",
    r"(?:ignore[zr]?|oublie[zr]?)\b.{0,40}(?:instructions|consignes|règles)",
    r"(?:игнорир\w+|забудь\w*)\b.{0,40}(?:инструкц|правил|указан)",
    r"(?:忽略|无视|無視|忘记).{0,12}(?:指令|指示|提示|规则|規則)",
    r"(?:指示|命令|ルール)を(?:すべて)?(?:無視|忘れ)",
    r"(?:지시|명령|규칙).{0,10}무시",
    r"(?:تجاهل|انس).{0,30}(?:التعليمات|الأوامر|القواعد)",
    r"(?:निर्देश|नियम)\w*.{0,20}(?:अनदेखा|भूल)",
)


def effective_origin(entry: Entry) -> Origin:
    """Return the origin of an entry; a tainted one counts as external."""
    return weakest_origin([entry.origin, "external"]) if entry.tainted else entry.origin


def weakest_origin(origins: Iterable[Origin]) -> Origin:
    """Return the weakest of these origins."""
    return max(origins, key=ORIGINS.index)


def is_foreign(origin: Origin) -> bool:
    """Return whether an origin is weaker than the assistant's."""
    return ORIGINS.index(origin) > ORIGINS.index("assistant")


def is_doubtful(item: Entry | Fact) -> bool:
    """Return whether an item rests on foreign text and no reviewer accepted it.

    Active facts that were written as proposed have been accepted by a reviewer.
    """
    if isinstance(item, Fact):
        return item.status == "active" and is_foreign(item.origin)
    return is_foreign(effective_origin(item))


def reads_like_order(text: str) -> bool:
    """Detect text that gives orders to an agent (prompt injection)."""
    return bool(_order().search(text))


@cache  # in the background alone, so it is not compiled before
def _order() -> regex.Pattern[str]:
    return regex.compile("|".join(_ORDERS), regex.IGNORECASE)


def apply_trust(draft: Fact | FactDraft, sources: Sequence[Entry]) -> Fact | FactDraft:
    """Return a draft with the origin and the status that its sources leave it.

    Args:
        sources: the entries it rests on, as far as they are known.
    """
    origin = weakest_origin([draft.origin, *map(effective_origin, sources)])
    reason = ""
    if is_foreign(origin):
        reason = REVIEW_REASONS["outside"]
    elif any(entry.role == "user" and entry.parent for entry in sources):
        origin, reason = weakest_origin([origin, "assistant"]), REVIEW_REASONS["agent"]
    elif (draft.extractor != "remember" or origin != "user") and any(
        map(reads_like_order, (draft.text, draft.value, draft.quote, draft.subject))
    ):
        reason = REVIEW_REASONS["order"]
    if not reason:
        return replace(draft, origin=origin)
    return replace(draft, origin=origin, status="proposed", reason=draft.reason or reason)


def assume_trusted(entry: Entry) -> Entry:
    """Return an entry as if its role were its origin, to measure what the defence prevents."""
    return replace(entry, origin=entry.role, tainted=False, parent=None)


def cap_daily_credit(delta: float, others: Iterable[float]) -> float:
    """Limit a credit or blame by the other credits of the same item on that day."""
    if delta > 0:
        return min(delta, max(0.0, MAX_DAILY_CREDIT - sum(other for other in others if other > 0)))
    return max(delta, min(0.0, -MAX_DAILY_CREDIT - sum(other for other in others if other < 0)))
