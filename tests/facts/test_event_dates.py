"""Facts hold from the day of the event until the day they name, and end when a plan does."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from memtier_plugin.facts.extraction.rules import extract_facts
from memtier_plugin.memory import MemTier
from tests.builders import make_entry, user_message
from tests.cases import each_case

SAID = datetime(2026, 3, 4, 10, tzinfo=UTC)  # a Wednesday
TODAY = "2026-03-04"

# What is said, since when it holds, and until when where it says so.
DATED = [
    ("I moved to Porto yesterday.", "2026-03-03", ""),
    ("We switched to Postgres 16 last week.", "2026-02-23", ""),
    ("I've been vegetarian since January.", "2026-01-01", ""),
    ("I've worked at the mill since 2019.", "2019-01-01", ""),
    ("The office is closed from 23 December.", "2026-12-23", ""),
    ("The discount is valid until 31 May.", TODAY, "2026-05-31"),
    ("The garage is rented until August.", TODAY, "2026-08-01"),
    ("The pool is closed from 1 April until 15 April.", "2026-04-01", "2026-04-15"),
    ("The freeze lasts until Friday.", TODAY, "2026-03-06"),
    ("The new tariff applies as of 1 July 2026.", "2026-07-01", ""),
    ("Starting 1 June, invoices are sent as PDF.", "2026-06-01", ""),
    ("We cancelled the gym membership two days ago.", "2026-03-02", ""),
    ("I quit smoking on 12 February 2024.", "2024-02-12", ""),
    ("I sold my car on Monday.", "2026-03-02", ""),
    ("We moved the standup to 10:30.", TODAY, ""),
    ("The demo is on Tuesday.", TODAY, ""),
    ("The deploy day is Tuesday.", TODAY, ""),
    ("Our sprint ends every second Friday.", TODAY, ""),
    ("The bins are collected on Thursdays.", TODAY, ""),
    ("The gardener comes every Monday.", TODAY, ""),
    ("The audit is planned for 14 April.", TODAY, ""),
    ("Go-live slipped to January 15.", TODAY, ""),
    ("My parents arrive tomorrow.", TODAY, ""),
    ("I broke my wrist last Friday.", "2026-02-27", ""),
    ("I adopted a cat in October 2025.", "2025-10-01", ""),
    ("The licence expired on 28 February.", "2026-02-28", ""),
    ("The router has been in the attic since Sunday.", "2026-03-01", ""),
    ("The parking permit is valid till 30 June 2027.", TODAY, "2027-06-30"),
    ("Parcels go to the neighbour until 20 March.", TODAY, "2026-03-20"),
    ("The old API stays online through 30 September.", TODAY, "2026-09-30"),
    ("Mr Brandt has been our landlord since May 2021.", "2021-05-01", ""),
    ("Our rent went up to 980 euros last month.", "2026-02-01", ""),
    ("We renamed the repo to ledgerline yesterday.", "2026-03-03", ""),
    ("The fair runs from 3 May to 9 May.", "2026-05-03", "2026-05-09"),
    # German
    ("Ich bin gestern nach Graz gezogen.", "2026-03-03", ""),
    ("Seit März 2024 arbeite ich bei Siemens in Linz.", "2024-03-01", ""),
    ("Der Aufzug ist bis 20. April gesperrt.", TODAY, "2026-04-20"),
    ("Ab 1. Juni gilt der neue Tarif.", "2026-06-01", ""),
    ("Das Büro ist vom 24. Dezember bis 2. Januar geschlossen.", "2026-12-24", "2027-01-02"),
    ("Die Prüfung findet am 12. Mai statt.", TODAY, ""),
    ("Unser Team trifft sich jeden Montag.", TODAY, ""),
    ("Die Garage ist bis August vermietet.", TODAY, "2026-08-01"),
    # Spanish
    ("Vivo en Cádiz desde enero de 2022.", "2022-01-01", ""),
    ("La oferta es válida hasta el 31 de mayo.", TODAY, "2026-05-31"),
    ("A partir del 1 de junio las facturas van en PDF.", "2026-06-01", ""),
    ("La piscina está cerrada hasta agosto.", TODAY, "2026-08-01"),
    ("La auditoría es el 14 de abril.", TODAY, ""),
    ("Nuestro equipo se reúne cada lunes.", TODAY, ""),
    ("Ayer cambiamos el puerto a 7070.", "2026-03-03", ""),
    # French
    ("Le bureau est fermé jusqu'au 15 avril.", TODAY, "2026-04-15"),
    ("J'habite à Nantes depuis mai 2020.", "2020-05-01", ""),
    ("À partir du 1 juin, les factures sont en PDF.", "2026-06-01", ""),
    ("Le parking est loué jusqu'en août.", TODAY, "2026-08-01"),
    ("L'audit est le 14 avril.", TODAY, ""),
    ("Notre équipe se retrouve tous les lundis.", TODAY, ""),
    # Chinese
    ("从6月1日起，发票用PDF发送。", "2026-06-01", ""),
    ("办公室关门到4月15日。", TODAY, "2026-04-15"),
    ("我从2022年开始住在成都。", "2022-01-01", ""),
    ("审计定在4月14日。", TODAY, ""),
    ("我们每周一开会。", TODAY, ""),
]  # fmt: skip

# A plan or a state, what ends it, and a word by which the older fact is known.
ENDED = [
    ("Go-live of the shop is planned for December 1.", "Go-live of the shop slipped to January 15.",
     "December"),
    ("The picnic is on Saturday 9 May.", "The picnic is cancelled.", "9 May"),
    ("The beta test starts on 4 May.", "The beta test has been called off.", "4 May"),
    ("The workshop is on 12 June.", "The workshop was postponed to 19 June.", "12 June"),
    ("The standup is at 9:30.", "We moved the standup to 10:15.", "9:30"),
    ("The choir rehearsal is on Mondays at 19:00.",
     "The choir rehearsal moved to Wednesdays at 19:00.", "Mondays"),
    ("The audit is due on 14 April.", "The audit got pushed to 28 April.", "14 April"),
    ("The plumber's visit is on 20 March at nine.", "The plumber's visit on 20 March fell through.",
     "at nine"),
    ("The farewell party is on 3 July.", "The farewell party has been moved to 10 July.", "3 July"),
    ("Our quarterly board meeting is on 2 April.",
     "Our quarterly board meeting was brought forward to 30 March.", "2 April"),
    ("The launch is scheduled for 1 September.", "The launch is off.", "1 September"),
    ("We're flying to Lisbon on 8 August.", "We're no longer flying to Lisbon.", "8 August"),
    ("We plan to open a shop in Ghent in May.", "We gave up the plan to open a shop in Ghent.",
     "in May"),
    ("The migration to Kafka begins on 6 May.", "The migration to Kafka was scrapped.", "6 May"),
    ("The hackathon takes place on 17 October.", "The hackathon is postponed to 24 October.",
     "17 October"),
    ("The lease ends on 31 October.", "The lease was extended to 31 December.", "31 October"),
    ("The staging host is crane.", "The staging host moved to heron.", "is crane"),
    ("The session limit is 60 minutes.", "The session limit went up to 90 minutes.", "60"),
    ("The billing repo is called tollgate.", "The billing repo was renamed to ledgerline.",
     "tollgate"),
    ("The mail relay listens on port 2525.", "The mail relay moved to port 2526.", "2525"),
    # German
    ("Das Sommerfest der Schule ist am 4. Juli.", "Das Sommerfest der Schule wurde abgesagt.",
     "4. Juli"),
    ("Die Prüfung ist am 12. Mai.", "Die Prüfung wurde auf den 26. Mai verschoben.", "12. Mai"),
    ("Der Umzug nach Graz ist am 1. April.", "Der Umzug nach Graz fällt aus.", "1. April"),
    # Spanish
    ("La entrega es el 8 de mayo.", "La entrega se aplazó al 22 de mayo.", "8 de mayo"),
    ("La cena de empresa es el 3 de junio.", "La cena de empresa se canceló.", "3 de junio"),
    # French
    ("La livraison est le 9 avril.", "La livraison est repoussée au 16 avril.", "9 avril"),
    ("Le pique-nique de l'école est le 5 mai.", "Le pique-nique de l'école est annulé.", "5 mai"),
    # Chinese
    ("会议是周三下午三点。", "会议改到周四下午三点。", "周三"),
    ("部门聚餐是5月9日。", "部门聚餐改到5月16日。", "5月9日"),
    ("上线时间是6月1日。", "上线时间推迟到6月15日。", "6月1日"),
]  # fmt: skip


@each_case(("text", "since", "until"), DATED)
def test_a_fact_holds_when_its_words_say(text: str, since: str, until: str) -> None:
    """The validity is the event's: from "yesterday" or "since May", until "until August"."""
    drafts = extract_facts([make_entry(text, SAID, id="e")]).drafts
    spans = [
        (f"{d.valid_from:%Y-%m-%d}", f"{d.valid_to:%Y-%m-%d}" if d.valid_to else "") for d in drafts
    ]
    assert spans == [(since, until)] or (spans and not until and set(spans) == {(since, "")})


def test_a_plan_that_was_moved_or_called_off_is_not_left_active(tmp_path: Path) -> None:
    """Each of these is superseded by what ends it, from the day on which that was said."""
    left = []
    with MemTier.open(tmp_path / "home") as memory:
        for number, (before, after, _) in enumerate(ENDED):
            for text, day in ((before, 0), (after, 40)):
                memory.record(
                    [user_message(text)],
                    session_id=f"s{number}-{day}",
                    observed_at=SAID + timedelta(days=day - 60, minutes=number),
                )
        memory.consolidate()
        texts = [fact.text for fact in memory.facts() if fact.status == "active"]
        for before, after, word in ENDED:
            old = [text for text in texts if word in text and _is_about(before, text)]
            if [text for text in old if not _is_about(after, text)]:
                left.append((before, after))
    assert left == []


def _is_about(sentence: str, text: str) -> bool:
    """Tell whether a fact was made of a sentence: it has its words but for the speaker's."""
    return sentence.strip(".。")[-12:] in text.replace(" (", "(").partition("(")[0] + text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("The retry limit is 5.", "The retry limit is 7."),
        ("The invoice service is owned by Priya.", "The invoice service is owned by Anton."),
        ("The tenancy ends on 31 May.", "The tenancy ends on 30 June."),
    ],
)
def test_an_amount_an_owner_and_an_end_are_one_at_a_time(
    tmp_path: Path, before: str, after: str
) -> None:
    """A later value supersedes the earlier, without a word that tells of a change."""
    with MemTier.open(tmp_path / "home") as memory:
        for day, text in enumerate((before, after)):
            at = SAID + timedelta(days=day)
            memory.record([user_message(text)], session_id=f"s{day}", observed_at=at)
        memory.consolidate()
        [fact] = memory.facts()
        assert fact.quote.rstrip(".") == after.rstrip(".")


def test_what_held_until_a_day_is_marked_after_it(tmp_path: Path) -> None:
    """Its line says so in a recall, but not in one of a day on which it held."""
    with MemTier.open(tmp_path / "home") as memory:
        text = "The parking discount is valid until 31 May."
        memory.record([user_message(text)], session_id="s", observed_at=SAID)
        memory.consolidate()
        [fact] = [each for each in memory.facts() if each.relation == "ends_on"]
        notes = {
            at.month: hit.note
            for at in (datetime(2026, 5, 1, tzinfo=UTC), datetime(2026, 7, 1, tzinfo=UTC))
            for hit in memory.recall("parking discount", depth="facts", at=at).hits
            if hit.id == fact.id
        }
        assert notes == {5: "", 7: "held until 2026-05-31"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("I use Zed now.", "Zed"),
        ("The staging host is heron these days.", "is heron"),
        ("Der Testserver heißt jetzt Eisvogel.", "Eisvogel"),
    ],
)
def test_a_word_for_now_is_no_part_of_a_value(text: str, value: str) -> None:
    """That something is so by now is said by the validity, not by the value."""
    [draft] = extract_facts([make_entry(text, SAID, id="e")]).drafts
    assert draft.value == value


def test_an_event_of_the_past_is_no_appointment() -> None:
    """What happened last week holds since then, and is scheduled for nothing."""
    text = "My old street was hit by a flood last week."
    [draft] = extract_facts([make_entry(text, SAID, id="e")]).drafts
    assert (draft.relation, f"{draft.valid_from:%Y-%m-%d}") == ("states", "2026-02-23")


def test_what_is_kept_on_request_is_parsed_like_any_statement(tmp_path: Path) -> None:
    """It has a subject, a relation and a validity, and supersedes what it contradicts."""
    with MemTier.open(tmp_path / "home") as memory:
        memory.remember("The sandbox port is 7100.")
        memory.remember("The sandbox port is 7200.")
        [fact] = memory.facts()
        assert (fact.text, fact.value) == ("The sandbox port is 7200.", "7200")
        leave = memory.remember("The crane is rented until 31 May 2031.")
        assert f"{leave.valid_to:%Y-%m-%d}" == "2031-05-31"
        states = [view.state for view in memory.knowledge.person.timeline("sandbox port")]
        assert states == ["superseded", "active"]


@each_case("day", range(7))
@each_case(
    ("text", "weekday"),
    [
        ("Last Friday I sold my kayak.", 4),
        ("I joined a rowing club last Tues.", 1),
        ("I sold my kayak last weekend.", 5),
    ],
)
def test_what_happened_last_friday_holds_since_then(text: str, weekday: int, day: int) -> None:
    """Whatever day it is said on, the day is past, has that name, and is at most a week away."""
    uttered = SAID + timedelta(days=day)
    [draft] = extract_facts([make_entry(text, uttered, id="e")]).drafts
    assert draft.valid_from is not None and draft.valid_from.weekday() == weekday
    assert 0 < (uttered.date() - draft.valid_from.date()).days <= (8 if weekday == 5 else 7)
