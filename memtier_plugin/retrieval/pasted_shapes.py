"""The shapes of lines in mails, chats, logs, code and tables, and of requests to work on a text."""

from __future__ import annotations

from typing import Final

import regex

ENCLOSURES: Final = (  # what opens, what closes
    (regex.compile(r"(?<!\s)\s*(```|~~~)"), r"\s*{0}"),
    (regex.compile(r"(?<!\s)\s*(\"\"\"|'''|«««)\s*$"), r"\s*{0}\s*$"),
    (regex.compile(r"(?<!\s)\s*<([A-Za-z][\w-]{0,40})(?:\s[^<>]{0,200})?>"), r".*</{0}>"),
    (
        regex.compile(r"(?<!\s)\s*\[([\p{L}][\p{L} _-]{2,40})\]\s*$"),
        r"\s*\[(?:/|end (?:of )?){0}\]",
    ),
    (regex.compile(r"(?<![\s*=-])\s*(-{3,}|={3,}|\*{3,})\s*$"), r"\s*{0}\s*$"),
)
HEADER: Final = regex.compile(
    r"(?i)[ \t>]*(?:from|to|cc|subject|date|sent|reply-to|von|an|gesendet|betreff|datum|de|à|objet"
    r"|envoyé|para|asunto|fecha|enviado|da|oggetto|inviato|van|aan|onderwerp|verzonden|assunto|от"
    r"|кому|тема|дата|发件人|收件人|主题|日期|差出人|宛先|件名)[ \t]*[:：][ \t]*\S"
)
TOPIC: Final = regex.compile(
    r"(?i)\s*(?:subject|betreff|objet|asunto|oggetto|assunto|onderwerp|тема|主题|件名|fwd?|wg|tr|rv|转发)"
    r"[ \t]*[:：][ \t]*\S"
)
MAIL_RULE: Final = regex.compile(r"\s*[-_]{3,}\s?\p{L}[^\n]{2,60}[^-_\s]\s?[-_]{3,}\s*$")
WROTE: Final = regex.compile(
    r"(?i)(?=[^\n]*[\d<@])\s*[^\n]{4,160}\b(?:wrote|writes|schrieb|a écrit|escribió|ha scritto"
    r"|escreveu|schreef|пишет|написала?|写道)\s*[:：]\s*$"
)
GREETING: Final = regex.compile(
    r"(?i)\s*(?:dear|hello|hi|hey|good (?:morning|day|evening)|sehr geehrte[rs]?|liebe[rs]?|hallo"
    r"|guten (?:tag|morgen)|cher|chère|bonjour|estimad[oa]s?|querid[oa]s?|hola|gentile|caro|cara"
    r"|prezad[oa]|ol[áa]|beste|geachte|уважаем\w+|здравствуйте|добрый день|尊敬的|您好|拝啓)"
    r"\b[^.!?\n]{0,60}[,:!，：]?\s*$"
)
CLOSING: Final = regex.compile(
    r"(?i)\s*(?:(?:kind|best|warm)?\s*regards|best(?: wishes)?|cheers|many thanks|thanks|thank you"
    r"|love|yours\b.*|sincerely|see you|mit (?:freundlichen|besten|lieben) gr.*"
    r"|(?:viele|liebe|beste) gr.*|gruß|lg|vg|cordialement|bien à (?:vous|toi)|salutations.*"
    r"|saludos|un saludo|atentamente|cordiali saluti|saluti|atenciosamente|abraços"
    r"|met vriendelijke.*|groet(?:en|jes)?|с уважением|с приветом|此致|敬上|谢谢)[ ,.!\p{L}]{0,40}$"
)
_TIME: Final = (
    r"(?:\d{1,4}[./-]\d{1,2}[./-]\d{1,4},?[ T])?\d{1,2}[:.]\d\d(?:[:.]\d\d)?"
    r"(?:\s?[AaPp]\.?[Mm]\.?)?"
)
_WHO: Final = r"(?P<who>[\p{L}@][\w.'-]*(?: [\p{L}\d][\w.'-]*){0,2})"
TIMED: Final = regex.compile(  # a turn with its time
    rf"\s*(?:[\[(]\s?{_TIME}\s?[\])]|{_TIME})(?:\s?[-–—|]\s?|\s+){_WHO}(?:\s?\([^)\n]{{1,30}}\))?[:：>]\s*\S"
    rf"|\s*\[?{_WHO}[\s,(\[]{{1,2}}{_TIME}[\])]?\s?[:：]\s*[^\s\d]"
)
SPOKEN: Final = regex.compile(rf"\s*(?:[*_]{{0,2}}<?{_WHO}>?[*_]{{0,2}})[:：][*_]{{0,2}}\s+\S")
IRC: Final = regex.compile(r"\s*<[@+]?[\w.-]{2,30}>\s+\S")
HEAD: Final = regex.compile(  # whose words follow on the next lines
    rf"\s*{_WHO}\s{{2,}}{_TIME}\s*$"
    r"|\s*(?:@|(?=[^\n]*(?:\d|ago|yesterday)))[\w.-]{2,40}\s"
    r"(?:commented|replied|reviewed|wrote|said|suggested|requested changes)"
    r"\b[^\n.!?]{0,60}$"
    r"|\s*(?:\#{1,4}\s|\*\*)(?:customer|agent|user|assistant|human|ai|bot|system|support|client|kunde)"
    r"\b[^\n]{0,30}$",
    regex.IGNORECASE,
)
PLACED: Final = regex.compile(r"\s*[\w./-]+\.\w{1,5}:\d+(?::\d+)?[:\s]\s?\S")  # src/app.py:40: ...
ROLES: Final = regex.compile(
    r"(?i)(?:user|human|assistant|ai|bot|system|customer|agent|support|client|kunde|interviewer"
    r"|candidate|speaker|doctor|patient|host|guest|caller|q|a|usuario|asistente|utilisateur)\s?\d{0,2}"
)
LOG: Final = regex.compile(
    r"""(?x)\s*(?:
      Traceback\ \(most\ recent | Exception\ in\ thread | File\ "[^"]+",\ line\ \d
    | at\ [\w.$<>/]+\s?\( | Caused\ by: | [\w.]*(?:Error|Exception)\b[^.?!]{0,40}:
    | npm\ (?:ERR!|WARN) | panic: | fatal:
    | \[?\d{4}-\d\d-\d\d[T\ ]\d\d:\d\d:\d\d | [A-Z][a-z]{2}\ [\ \d]\d\ \d\d:\d\d:\d\d
    | \d{1,3}(?:\.\d{1,3}){3}\s.*\[ | \[\s*\d+\.\d+\]\s
    | \[?(?:TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERROR|FATAL)\]?[\s:|]
    )"""
)
_SHELL: Final = regex.compile(
    r"\s*(?:[\w.@~:/-]{0,40}\$|[\w.-]+@[\w.~:/-]{1,60}#|PS [^>\n]{1,80}>)"
    r"\s[a-z./][^\n]*[^.?!\s]\s*$"
)
_DIFF: Final = regex.compile(r"\s*(?:diff --git |--- [\w./]|\+\+\+ [\w./]|@@ -\d)")
CODE: Final = regex.compile(
    r"\s*(?://|/\*|\*/|#include\b|#!/|(?:public|private|protected|static|export|async)\s+\w|(?:def|class"
    r"|func|fn|function)\s[\w$]+\s?[({:]|(?:const|let|var)\s+[\w${\[]|import\s[\w{*\"'.]+(?:\s|$|;)"
    r"|from\s[\w.]+\simport\s|return\b.*[;\w)\]]$|package\s[\w.]+;?$|(?i:insert\s+into|select\s.+\sfrom"
    r"|create\s+table|update\s+\w+\s+set)\s|[\]})]+[;,]?\s*$|@\w+(?:\(.*\))?\s*$)"
    r"|(?!\s*(?:[-*•]|\w{1,3}[.)])\s)(?:[^\n]*[={}()\[\]<>][^\n]*;|[^\n]*(?:[{}]|\(\):?|=>))\s*$"
)
_JSON: Final = regex.compile(r"\s*[\[{].*\"[\w $-]+\"\s?:")
SHAPES: Final = (
    ("log", LOG),
    ("shell", _SHELL),
    ("diff", _DIFF),
    ("json", _JSON),
    ("code", CODE),
)
ROW: Final = regex.compile(r"\s*\|.*\|\s*$")
RULE_LINE: Final = regex.compile(r"\s*(?:[-=+:|]{2,}\s*){2,}$|\s*[-=+|]{6,}\s*$")
COLUMNS: Final = regex.compile(r"\S {2,}\S")
BELOW: Final = regex.compile(
    r"(?i)\b(?:this|these|following|below|attached|here(?:'s|’s| is| are)|folgende[nrs]?"
    r"|diese[nrms]?|dies|hier|unten|cet(?:te)?|ces?|ceci|voici|suivante?s?|ci-dessous|est[aeo]s?|siguientes?|aquí"
    r"|abajo|quest[aeio]|seguente|ecco|est[ea]s?|isto|seguinte|deze|dit|volgende|эт(?:о|от|у|и|а)"
    r"|следующ\w+|ниже|вот)\b|下面|以下|如下|这|這|次の|以下の"
)
RECEIVED: Final = regex.compile(  # at the end of a line that introduces a text
    r"(?i)\b(?:(?:got|received|(?<!\bI (?:just )?)(?:sent|mailed|wrote|texted|forwarded)|log|output"
    r"|error|export|transcript|result|message|thread|chat|mail|email|says|schrieb|schickte|geschickt|bekommen|reçu|écrit"
    r"|envoyé|recibí|escribió|envió|написала?|прислала?)s?)\b[^.!?]{0,24}[:：]\s*$"
)
THEIRS: Final = regex.compile(
    r"(?i)\b(?:his|her|their)\b|\bof (?:my|a|our)\b"
    r"|\b(?!(?:it|that|there|what|let|he|she|who|here|how|where|everything|one)['’])\p{L}+['’]s\s+\p{L}"
)
SENTENCE_END: Final = regex.compile(r"(?<=[.!?…])\s+|(?<=[。！？])")
WORK: Final = regex.compile(
    r"(?i)(?:review|rate|grade|port|shorten|tl;?dr|reply|answer|respond|help|look at|read"
    r"|go through|check|what(?:'s| is| does| do)|why|is|are|does|do|how many|which|who|count|sum up"
    r"|prüf\w*|lies|schau|beantworte|antworte|was|warum|lis\b|vérifie|réponds|que|pourquoi|revisa|lee|responde"
    r"|qué|проверь|прочитай|ответь|что|почему)\b|(?:看|检查|回复|总结|翻译|为什么|什么)"
)
