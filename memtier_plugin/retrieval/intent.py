"""Recognise queries that ask for an overview or a history."""

from __future__ import annotations

from typing import Final

import regex

MAX_QUERY_CHARS: Final = 20_000  # characters of a query that are looked at

# A request for what was, not for what is put before the reader ("summarise this article").
_HERE: Final = (
    r"(?!\W+(?:\w+\W+){0,3}?(?:this|that|these|those|the following|below|above|attached|article|"
    r"paper|document|pdf|file|page|book|code|e-?mail|text|report|website|url|link|transcript)\b)"
)


_PAST: Final = (
    r"(?:did|have|had|were|was|['’]ve|are)\W+(?:we|i|you)\W+(?:\w+\W+){0,3}?"
    r"(?:d[oi]d?|done|doing|talk\w*|discuss\w*|work\w*|cover\w*|decide\w*|accomplish\w*|achieve\w*"
    r"|agree\w*|up to|say|said|plan\w*|chat\w*|get done|got done|make|made)"
)


_OVERVIEW: Final = regex.compile(
    rf"""(?ix)
    \b(?:summari[sz](?:e|ing)|(?:sum(?:\W+it)?\W+up)|summary|overview|rundown|highlights){_HERE}\b
    | \b(?:recap|catch\W+me\W+up|(?:bring|get)\W+me\W+up\W+to\W+(?:date|speed))\b
    | \bwhat(?:\W+(?:all|else|exactly|things|topics|have))?\W+{_PAST}
    | \bwhat\W+(?:happened|went\W+on|was\W+going\W+on|has\W+been\W+happening)\b
        \W*(?:$|[?.!]|(?:on|in|last|this|yesterday|today|during|since|so\W+far|over|between|while)\b)
    | \bwhere\W+(?:did|were|have)\W+we\W+(?:\w+\W+){{0,2}}?(?:leave|left|stop|stopped|off)\b
    | \bwhere\W+(?:we|i)\W+left\W+off\b
    | \bzusammenfass\w* | \bfass\w*\b.{{0,60}}\bzusammen\b | \büberblick\b
    | \b(?:was|worüber|wovon)\W+(?:haben\W+wir|habe\W+ich|hatten\W+wir)\b
    | \bwo\W+(?:waren|sind)\W+wir\b.{{0,20}}\bgeblieben\b | \bwas\W+war\W+(?:gestern|letzte)
    | \bresúm\w* | \bresum(?:en|e|ir|e[nl]os|eme)\b | \bponme\W+al\W+(?:día|tanto)\b
    | \b(?:qué|que)\W+(?:hicimos|hablamos|discutimos|decidimos|acordamos)\b
    | \bde\W+qu[ée]\W+hablamos\b | \bvisión\W+general\b
    | \brésum(?:é|e|er|ez|ons)\b | \brécapitul\w* | \bvue\W+d['’]ensemble\b
    | \bqu['’](?:est-ce\W+qu['’](?:on|avons-nous)|avons-nous|a-t-on)\b.{{0,30}}
        (?:fait|dit|discuté|décidé|parlé)
    | \bde\W+quoi\W+(?:avons-nous|a-t-on|on\W+a|nous\W+avons)\b
    | \boù\W+en\W+(?:étions-nous|sommes-nous|était-on)\b
    | 总结|總結|概括|概述|回顾|回顧|摘要
    | (?:我们|我們|咱们)[^，。？?]{{0,8}}(?:做|聊|讨论|討論|谈|談|说|說|干)[了过過]
        [^，。？?]{{0,4}}什[么麼]
    """
)


def asks_overview(query: str) -> bool:
    """Tell whether a query asks for what was done or said as a whole, not for one thing of it."""
    return _OVERVIEW.search(query[:2000]) is not None


_HISTORY: Final = regex.compile(
    r"""(?ix)
    \b(?:used\W+to | previous(?:ly)? | former(?:ly)? | over\W+(?:time|the\W+years) | history
      | timeline | changed? | since\W+when | earlier | originally | in\W+the\W+past | back\W+then
      | no\W+longer | any\W*more | evol(?:ve|ved|ution))\b
    | \bbefore\b(?=\W*(?:$|[?.!,]|that\b|now\b|today\b|moving\b|(?:he|she|they|we|it|i)\b))
    | \b(?:früher | vorher | zuvor | ehemal\w* | seit\W+wann | geändert | verlauf | damals
      | ursprünglich)\b
    | \b(?:antes | anterior(?:mente)? | historial? | historia | cambi\w+ | desde\W+cuándo | solía\w*
      | originalmente)\b
    | \b(?:avant | auparavant | précédemment | ancien\w* | historique | depuis\W+quand | chang\w+
      | autrefois | à\W+l['’]origine)\b
    | 以前 | 之前 | 曾经 | 曾經 | 过去 | 過去 | 历史 | 歷史 | 变化 | 變化 | 原来 | 原來
    """
)


def asks_history(query: str) -> bool:
    """Tell whether a query asks how something was before, or how it changed."""
    return _HISTORY.search(query[:2000]) is not None


def wants_kind(query: str, shelf: str) -> bool:
    """Tell whether a query finds what stands on a shelf, or on none (`Fact.shelf`)."""
    asks = {"summary": asks_overview, "timeline": asks_history}
    return shelf not in asks or asks[shelf](query[:MAX_QUERY_CHARS])
