"""Sixty dated statements and the window in which each holds: the test set of event time.

All are said on Wednesday, 18 March 2026.  A window is the first day and the last day that the words
name; without a first one it begins on the day of the statement, without a last one it is open.
"Until October" ends with its first day, "to October" with its last.  What ended at a day in the
past is known for that day.  They were written before the code was run on any of them.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, NamedTuple

SAID: Final = datetime(2026, 3, 18, 9, 30, tzinfo=UTC)
TODAY: Final = "2026-03-18"


class DatedStatement(NamedTuple):
    """What is said, and the first and the last day on which it holds ("" for an open end)."""

    text: str
    first: str = TODAY
    last: str = ""


STATEMENTS: Final[dict[str, tuple[DatedStatement, ...]]] = {
    "past day": (
        DatedStatement("I moved to Porto yesterday.", "2026-03-17"),
        DatedStatement("I started my new job at Veltrion last Monday.", "2026-03-16"),
        DatedStatement("We bought a used Skoda three days ago.", "2026-03-15"),
        DatedStatement("My sister got married on 6 September 2025.", "2025-09-06"),
        DatedStatement("I graduated in June 2018.", "2018-06-01"),
        DatedStatement("We launched the billing service two weeks ago.", "2026-03-04"),
        DatedStatement("My dog Biscuit died in 2023.", "2023-01-01"),
        DatedStatement("I passed my driving test on 2026-02-11.", "2026-02-11"),
        DatedStatement("I was promoted to team lead last month.", "2026-02-01"),
        DatedStatement("The server room was flooded on Saturday.", "2026-03-14"),
    ),
    "since": (
        DatedStatement("I've lived in Tampere since August 2021.", "2021-08-01"),
        DatedStatement("Since 2017 I have been the treasurer of our choir.", "2017-01-01"),
        DatedStatement("Our CI has been running on Buildkite since last week.", "2026-03-09"),
        DatedStatement("I have been on a gluten-free diet since Monday.", "2026-03-16"),
        DatedStatement("Since 3 February the cluster has had five nodes.", "2026-02-03"),
        DatedStatement("My brother has been a nurse since 2012.", "2012-01-01"),
    ),
    "until": (
        DatedStatement("I'm in Ljubljana until Friday.", TODAY, "2026-03-20"),
        DatedStatement("The staging database stays frozen until 2 April.", TODAY, "2026-04-02"),
        DatedStatement("My parental leave lasts until 30 September 2026.", TODAY, "2026-09-30"),
        DatedStatement("Until tomorrow the printer is in room 4.", TODAY, "2026-03-19"),
        DatedStatement("The guest password is valid through 25 March.", TODAY, "2026-03-25"),
        DatedStatement("I'm on call till Sunday.", TODAY, "2026-03-22"),
    ),
    "from to": (
        DatedStatement("From March to June 2025 I worked at Halden Optics.",
                       "2025-03-01", "2025-06-30"),
        DatedStatement("I worked at the port authority from 2014 to 2019.",
                       "2014-01-01", "2019-12-31"),
        DatedStatement("I lived in Bergen from May 2020 until October 2022.",
                       "2020-05-01", "2022-10-01"),
        DatedStatement("The museum is closed from 4 May to 17 May.", "2026-05-04", "2026-05-17"),
        DatedStatement("Between 2009 and 2013 I studied geology in Leoben.",
                       "2009-01-01", "2013-12-31"),
        DatedStatement("I'm on holiday from 6 to 19 July.", "2026-07-06", "2026-07-19"),
        DatedStatement("My mother is visiting from Friday to Sunday.", "2026-03-20", "2026-03-22"),
        DatedStatement("We rented the warehouse from January to March 2024.",
                       "2024-01-01", "2024-03-31"),
        DatedStatement("The contract with Lumen runs from 1 April 2026 to 31 March 2028.",
                       "2026-04-01", "2028-03-31"),
        DatedStatement("My office hours are in room 212 from 23 March through 27 March.",
                       "2026-03-23", "2026-03-27"),
        DatedStatement("I was the captain of the team between May 2021 and July 2023.",
                       "2021-05-01", "2023-07-31"),
        DatedStatement("The conference takes place June 8-11, 2026.", "2026-06-08", "2026-06-11"),
    ),
    "span that is over": (
        DatedStatement("I lived in Marseille in 2016.", "2016-01-01", "2016-12-31"),
        DatedStatement("In 2021 I worked for a shipping company.", "2021-01-01", "2021-12-31"),
        DatedStatement("I used to work at Nordwind until 2022.", "2022-01-01", "2022-01-01"),
        DatedStatement("We used Jenkins until last month.", "2026-02-01", "2026-02-01"),
        DatedStatement("I was in Oslo last week.", "2026-03-09", "2026-03-15"),
        DatedStatement("Our team lead was Carla until 1 March.", "2026-03-01", "2026-03-01"),
    ),
    "not yet": (
        DatedStatement("From 1 April the office is in Leeds.", "2026-04-01"),
        DatedStatement("Starting next Monday, deploys need two approvals.", "2026-03-23"),
        DatedStatement("As of 1 May 2026 our VAT number is DE813.", "2026-05-01"),
        DatedStatement("The new price list applies from 15 June.", "2026-06-15"),
        DatedStatement("I'm moving to Porto on 1 April."),
        DatedStatement("We're going to Crete in August."),
        DatedStatement("The go-live is on 9 April."),
    ),
    "no time": (
        DatedStatement("My favourite editor is Helix."),
        DatedStatement("The staging port is 7443."),
        DatedStatement("I am allergic to penicillin."),
        DatedStatement("Our retro is every second Thursday."),
        DatedStatement("The 2019 edition of the style guide is our reference."),
        DatedStatement("I prefer short commit messages."),
    ),
    "other languages": (
        DatedStatement("Von März bis Juni 2025 habe ich bei Halden gearbeitet.",
                       "2025-03-01", "2025-06-30"),
        DatedStatement("Ich wohne seit 2018 in Kassel.", "2018-01-01"),
        DatedStatement("Das Lager ist vom 4. Mai bis 9. Mai geschlossen.",
                       "2026-05-04", "2026-05-09"),
        DatedStatement("Trabajo en el hospital desde marzo de 2023.", "2023-03-01"),
        DatedStatement("Le musée est fermé du 4 mai au 9 mai.", "2026-05-04", "2026-05-09"),
        DatedStatement("Je travaille à la mairie depuis 2015.", "2015-01-01"),
        DatedStatement("办公室从5月4日到5月9日关门。", "2026-05-04", "2026-05-09"),
    ),
}  # fmt: skip
