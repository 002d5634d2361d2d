"""Select the rows of the pattern table that can match a clause, by its opening words.  Pure."""

from __future__ import annotations

import re
from functools import cache
from typing import Final, NamedTuple

from memtier_plugin.facts.extraction.pattern_table import (
    AFTER_TIME,
    INSTRUCTIONS,
    NAMED_THINGS,
    OWN_THINGS,
    SELF_STATEMENTS,
    SUBJECTLESS,
    TENTATIVE,
)
from memtier_plugin.facts.extraction.vocabulary import AM, HAVE, ME


class Rule(NamedTuple):
    """A relation and the pattern that matches a clause from its start.

    Groups of the pattern: ``value`` is the stated value and ``verb`` the verb to inflect; ``thing``
    names a subject other than the speaker, ``own`` a possession of the speaker.
    """

    relation: str
    pattern: re.Pattern[str]


_OPENING: Final = re.compile(
    r"(?:[Ii]|[Ww]e)(?:(?P<am>['’]?m\b|['’]re| am\b| are\b)|(?P<have>['’]?ve\b| have\b)|"
    r"(?P<will>['’]ll| will\b)|(?P<would>['’]d| would\b)|(?P<i>\b))|(?P<my>(?:[Mm]y|[Oo]ur) )|"
    r"(?P<order>[Pp]lease |[Aa]lways |[Nn]ever |[Dd]on|[Dd]o not |[Rr]emember |[Nn]ote|[Kk]eep in |"
    r"[Ll]et|[Ff]rom now|[Gg]oing forward|[Ww]hen|[Ee]very time|[Ii]n (?:the )?future|[Cc]all me )|"
    r"(?P<bare>(?:[Jj]ust|[Ff]inally|[Rr]ecently|[Aa]lso|[Ee]ven|[Ww]ent|[Tt]ook|[Bb]ought|[Gg]ot|"
    r"[Ss]tarted|[Ff]inished|[Ll]ost|[Ss]old|[Aa]dopted|[Mm]oved|[Pp]assed|[Mm]et|[Rr]an|[Jj]oined|"
    r"[Vv]isited|[Ww]on|[Mm]ade|[Hh]ad|[Ss]igned|[Gg]onna|[Gg]oing to|[Pp]lanning to|[Hh]oping to|"
    r"[Bb]een) )"
)
_TABLES: Final = {
    "my": OWN_THINGS + NAMED_THINGS,
    "order": INSTRUCTIONS,
    "bare": SUBJECTLESS,
    "thing": NAMED_THINGS,
    "after time": AFTER_TIME,
}
# Most rows begin with "I"; the word after it decides which of them can match.
_FORMS: Final = {
    "am": AM,
    "have": f"{ME}(?P<have>",
    "will": f"{ME}(?:['’]ll",
    "would": f"{ME}(?:['’]d",
}


@cache
def _compiled(kind: str, unsure: bool) -> tuple[Rule, ...]:
    table = _TABLES.get(kind) or (() if unsure else SELF_STATEMENTS) + TENTATIVE
    return tuple(Rule(name, re.compile(row)) for name, row in table if _fits(kind, row))


def _fits(kind: str, row: str) -> bool:
    """Check whether a row can match a clause with this opening."""
    if kind in _TABLES:
        return True
    form = next((form for form, start in _FORMS.items() if row.startswith(start)), None)
    if kind == "have":  # "I have to" is a verb like any other
        return form in ("have", None)
    return form == kind or (kind == "i" and (form is None or row.startswith(HAVE)))


def candidate_rules(
    clause: str, *, unsure: bool = False, after_time: bool = False
) -> tuple[Rule, ...]:
    """Return the rows that can match a clause, in the order in which they are tried.

    Args:
        unsure: the clause contains a word of doubt.
        after_time: a time stands before it.
    """
    opening = _OPENING.match(clause)
    kind = (opening.lastgroup if opening else None) or "thing"
    if unsure and kind in _TABLES:
        return ()
    rules = _compiled(kind, unsure)
    return (*rules, *_compiled("after time", unsure)) if after_time and not unsure else rules
