"""The settings of TierMem."""

from __future__ import annotations

from typing import Annotated

from memtier_plugin.core.settings.schema import Within
from memtier_plugin.core.structs import Record


class RouterDoubts(Record, frozen=True, kw_only=True):
    """The weight of each doubt in the facts, and the sum up to which the facts alone answer."""

    unsaid: Annotated[float, Within(-100, 100)] = 0.5
    uncarried: Annotated[float, Within(-100, 100)] = 0.5
    no_fact: Annotated[float, Within(-100, 100)] = 0.3
    kind: Annotated[float, Within(-100, 100)] = 0.3
    disagree: Annotated[float, Within(-100, 100)] = 0.3
    ended: Annotated[float, Within(-100, 100)] = 0.3
    foreign: Annotated[float, Within(-100, 100)] = 0.5
    blamed: Annotated[float, Within(-100, 100)] = 0.3
    limit: Annotated[float, Within(-100, 100)] = 0.2
