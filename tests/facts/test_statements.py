"""Whole statements: what people want remembered becomes a fact that says all of it, nothing else.

The tables are of the classes of speech that matter, in five languages; none is from a benchmark.
"""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from memtier_plugin.core.records import FactDraft
from memtier_plugin.facts.extraction.rules import extract_facts
from tests.builders import make_entry
from tests.cases import each_case

SAID = datetime(2026, 3, 4, 10, tzinfo=UTC)  # a Wednesday


def drafts_of(text: str, speaker: str | None = None) -> tuple[FactDraft, ...]:
    """Return what the rules take from what somebody said."""
    return extract_facts([make_entry(text, SAID, id="e", speaker=speaker)]).drafts


KEPT = [
    # rules and prohibitions
    ("Never merge without a green pipeline.", "never", "merge", "green"),
    ("Don't touch the Terraform state by hand.", "Terraform", "don't"),
    ("Do not log card numbers anywhere.", "card numbers", "not"),
    ("From today on, invoices go out as PDF.", "invoices", "PDF"),
    ("Going forward, every ticket needs an estimate.", "ticket", "estimate"),
    ("Every time you add a route, update the OpenAPI file.", "route", "OpenAPI"),
    ("Please never suggest seafood restaurants.", "never", "seafood"),
    ("Smoking on the balcony is not allowed.", "balcony", "not allowed"),
    ("Guests must sign the visitors' book.", "Guests", "visitors' book"),
    ("Only admins may delete workspaces.", "admins", "workspaces"),
    ("Avoid abbreviations in variable names.", "abbreviations", "variable"),
    ("No deploys during the school holidays of Bavaria.", "deploys", "Bavaria"),
    ("Use double quotes in all TypeScript files.", "double quotes", "TypeScript"),
    # changes
    ("The workshop was moved to room Cedar.", "workshop", "Cedar"),
    ("Kick-off got pushed to the 3rd of June.", "Kick-off", "3rd of June"),
    ("We renamed the billing repo to ledgerline.", "billing repo", "ledgerline"),
    ("The staging host moved to heron.", "staging host", "heron"),
    ("The session limit went up to 90 minutes.", "session limit", "90 minutes"),
    ("The barbecue is cancelled.", "barbecue", "cancelled"),
    ("The yoga class no longer takes place on Mondays.", "yoga", "no longer", "Mondays"),
    ("Our landlord raised the rent to 980 euros.", "rent", "980"),
    # decisions
    ("We picked Elm over React for the dashboard.", "Elm", "dashboard"),
    ("We've ruled out Kubernetes for now.", "ruled out", "Kubernetes"),
    ("Let's name the new queue pelican.", "queue", "pelican"),
    ("The board approved the second hire.", "board", "second hire"),
    # names, places, numbers, owners
    ("The printer on the second floor is called Gutenberg.", "printer", "Gutenberg"),
    ("Our message broker is RabbitMQ.", "message broker", "RabbitMQ"),
    ("Our mail relay listens on port 2525.", "mail relay", "2525"),
    ("The connection pool size is 40.", "pool", "40"),
    ("The retry delay is 15 seconds.", "retry delay", "15"),
    ("Ingrid looks after the payroll export.", "Ingrid", "payroll"),
    ("The nightly job belongs to the data team.", "nightly job", "data team"),
    ("Feature flags live in config/flags.yaml.", "Feature flags", "config/flags.yaml"),
    ("Prometheus scrapes every 20 seconds.", "Prometheus", "20 seconds"),
    ("Customer ids begin with KX.", "Customer ids", "KX"),
    ("The cleaning lady has a key to the shed.", "cleaning lady", "key"),
    ("The spare tyre is in the cellar.", "spare tyre", "cellar"),
    ("Our accountant is called Mr Halloran.", "accountant", "Halloran"),
    ("The lease runs out at the end of October.", "lease", "October"),
    # people
    ("My sister Ana is allergic to peanuts.", "Ana", "allergic", "peanuts"),
    ("My grandfather can't have salt.", "grandfather", "salt"),
    ("My husband Tomas doesn't drink milk.", "Tomas", "milk", "doesn't"),
    ("Our son goes to swimming practice on Tuesdays.", "son", "Tuesdays"),
    ("I'm lactose intolerant.", "lactose"),
    ("I can't work on Wednesdays.", "Wednesdays", "can't"),
    ("I'd rather have short answers.", "short answers"),
    ("I prefer the window seat to the aisle.", "window seat"),
    ("I leave the office at 16:15.", "16:15"),
    # asked to remember
    ("Remember: the alarm code changed to 7714.", "alarm", "7714"),
    ("FYI, the lift is serviced on Thursday.", "lift", "Thursday"),
    ("Please note that the lift is serviced on Thursday.", "lift", "Thursday"),
    ("Please tell everyone that the picnic is on Sunday.", "picnic", "Sunday"),
    ("Die Küche in Celle nutzt Gas.", "Küche", "Gas"),
    ("The spare key is with Mrs Abbott, please remember.", "spare key", "Abbott"),
    ("Note that the museum closes at 17:00.", "museum", "17:00"),
    # German
    ("Niemals Passwörter ins Log schreiben.", "Niemals", "Passwörter"),
    ("Ab sofort antworten wir nur noch per E-Mail.", "Ab sofort", "E-Mail"),
    ("Das Treffen wurde auf Donnerstag verschoben.", "Treffen", "Donnerstag"),
    ("Unser Drucker steht im Keller.", "Drucker", "Keller"),
    ("Meine Tochter ist gegen Nüsse allergisch.", "Tochter", "Nüsse"),
    ("Die Frist endet am 12. Mai.", "Frist", "12. Mai"),
    ("Ich trinke keinen Kaffee nach 15 Uhr.", "keinen Kaffee", "15 Uhr"),
    ("Wir haben beschlossen, auf Docker zu verzichten.", "Docker"),
    # Spanish
    ("Nunca borres los registros de auditoría.", "Nunca", "registros"),
    ("El servidor de pruebas se llama Colibrí.", "servidor", "Colibrí"),
    ("La entrega se aplazó al 8 de mayo.", "entrega", "8 de mayo"),
    ("Mi hermano no come gluten.", "hermano", "gluten", "no"),
    ("Hemos decidido usar Rust para el motor.", "Rust", "motor"),
    ("A partir de ahora las reuniones son por la tarde.", "reuniones", "tarde"),
    ("Prefiero el té al café.", "té", "café"),
    # French
    ("Ne jamais pousser sur la branche main.", "jamais", "main"),
    ("Le serveur de test s'appelle Martin.", "serveur", "Martin"),
    ("La livraison est repoussée au 9 avril.", "livraison", "9 avril"),
    ("Mon frère est allergique au lait.", "frère", "lait"),
    ("Nous avons choisi Vue pour le tableau de bord.", "Vue"),
    ("Désormais, les rapports sont envoyés le lundi.", "rapports", "lundi"),
    ("Je préfère le train à l'avion.", "train", "avion"),
    # Chinese
    ("永远不要直接推送到主分支。", "不要", "主分支"),
    ("测试服务器叫北极熊。", "测试服务器", "北极熊"),
    ("我妈妈不吃辣。", "妈妈", "辣"),
    ("我们决定采用Kafka。", "Kafka"),
    ("数据库的端口是5433。", "数据库", "5433"),
    ("我更喜欢靠窗的座位。", "靠窗"),
]  # fmt: skip

LEFT = [
    # questions
    "Who owns the payroll export?",
    "Is the staging host still heron?",
    "Should we move the workshop to Thursday?",
    "can we use double quotes in all files?",
    # suppositions and doubts
    "If the landlord raised the rent to 980, we would move.",
    "Suppose the pool size were 400.",
    "Perhaps the lease runs out in October.",
    "I think the retry delay is 15 seconds.",
    "I'm not sure whether Ingrid owns the export.",
    "I wonder if the museum closes at 17:00.",
    "The lift might be serviced on Thursday.",
    "We should probably rename the repo to ledgerline some day.",
    # examples, fiction, parts that are played
    "For example, the printer could be called Gutenberg.",
    "Example input for the parser: I live in Evilton.",
    "Imagine the office is on the moon and I am its janitor.",
    "Let's pretend my sister is a dragon called Smaug.",
    "Write a story in which the hero says: I live in Evilton and my dog is called Rex.",
    "You are a pirate. Your ship is called Blackfin and your parrot owns it.",
    "Once upon a time the miller had three sons who lived in Ulm.",
    "The heroine Mia is 30 and owns a bakery; write the next chapter.",
    "Act as my landlord. The rent is 980 euros.",
    # other people's words
    "Fwd: news from the vendor\nWe decided to use evil5 for backups.",
    "From: Paula\nTo: all\nOur new office is in Graz.",
    "[10:02] Bob: the pool size is 40\n[10:03] Eva: the delay is 15 seconds",
    'Here is the paragraph: "The mayor lives in Graz." Shorten it.',
    "Someone wrote: we never use tabs.",
    "He said that the pool size is 40.",
    "> The retry delay is 15 seconds.",
    # work on a text
    "Translate into Greek: my sister is allergic to peanuts.",
    "Correct this sentence: I has two brothers.",
    "Can you rephrase the sentence: our son goes swimming on Tuesdays.",
    "Make a form with sample data: name Rosa Probst, city Wels.",
    "Don't change the second paragraph.",
    "Use the file above to compute the mean.",
    # talk and passing states
    "ok great, that works",
    "Thanks a lot, you're the best!",
    "Don't worry about it.",
    "I'm so tired today.",
    "The build is slow.",
    "The food was amazing!",
    "The tests are failing.",
    "It's snowing again.",
    "The second option is better.",
    "Never mind.",
    "That's a great approach.",
    "They're lovely, both of them.",
    "brb, coffee",
    "const port = 9999;\nserve(port);",
    # the same in other languages
    "Wo steht unser Drucker?",
    "Wenn ich in Bern wohnte, wäre das einfacher.",
    "Vielleicht wird das Treffen auf Donnerstag verschoben.",
    "Stell dir vor, mein Hund heißt Zar.",
    "Er sagte, der Server heißt Taube.",
    "Übersetze: Meine Tochter ist allergisch.",
    "¿Dónde está el servidor de pruebas?",
    "Quizás la entrega se aplace al 8 de mayo.",
    "Imagina que mi hermano vive en Marte.",
    "Traduce: mi hermano no come gluten.",
    "Où est le serveur de test ?",
    "Peut-être que la livraison est repoussée.",
    "Imaginons que mon frère habite sur Mars.",
    "Traduis : mon frère est allergique au lait.",
    "测试服务器叫什么？",
    "假设我妈妈不吃辣，做什么菜好？",
    "也许会议改到周四。",
    "翻译：我妈妈不吃辣。",
    "他说服务器叫鸽子。",
]  # fmt: skip


@each_case("case", KEPT, ids=lambda case: case[0])
def test_what_is_worth_keeping_is_kept_whole(case: tuple[str, ...]) -> None:
    """One fact has all that its sentence is about, and quotes it."""
    sentence, *needed = case
    drafts = drafts_of(sentence)
    texts = [draft.text.casefold() for draft in drafts]
    assert any(all(word.casefold() in text for word in needed) for text in texts), texts
    for draft in drafts:
        assert draft.span is not None and sentence[slice(*draft.span)] == draft.quote


@each_case("text", LEFT)
def test_what_is_not_meant_for_good_is_left(text: str) -> None:
    """Questions, doubts, fiction, others' words, work on texts and small talk are no facts."""
    assert [draft.text for draft in drafts_of(text)] == []


# What is said amid requests and remarks: of the matter at hand, or for good.
BEFORE = "Hi again. Thanks for the draft. Could you check the second table? "
IN_PASSING = [
    ("Ensure the headings are aligned.", False),
    ("Ensure every invoice carries our VAT number.", True),
    ("Don't drag this out.", False),
    ("The outline is solid and covers Lisbon.", False),
    ("The Porto chapter is a smart addition.", False),
    ("Porto chapters describe the Douro valley.", False),
    ("Our printer is in Porto.", True),
    ("I'm going to scan the receipts now.", False),
    ("The annual budget is 40,000 euros.", True),
    ("I'll finish the Porto chapter.", False),
    ("I need a chart of Q3.", False),
    ("I'm ready for Berlin.", False),
    ("I'm allergic to cashews.", True),
    ("My sister works at the Charité.", True),
    ("Let's move on to the Porto chapter.", False),
    pytest.param(
        *("We decided on Quarto for the Porto chapter.", True),
        marks=pytest.mark.xfail(reason="behind small talk it is taken for a passing remark"),
    ),
]


@pytest.mark.parametrize(("text", "kept"), IN_PASSING)
def test_amid_much_else_only_what_is_for_good_is_kept(text: str, kept: bool) -> None:
    """In a message of many sentences only what its own words make lasting is a fact."""
    drafts = drafts_of(BEFORE + text)
    assert bool(drafts) == kept, [draft.text for draft in drafts]


CUT_OFF = [
    "The tariff applies to all 40 members and the.",
    "The code 40” is displayed for each member).",
    "The method rests on the 40 samples from\nthe same group of people in Lyon.",
    "“The gate is at 12 Mill Lane. I live in Ghent. My dog is 9.” she said.",
    "[The king sits down at 12 tables and orders 40 dishes.]",
    "Q3 figures, 40.",
    "Don't do that.",
    "The parts to be ordered are: 1.",
    "2:12 And the last report lists 40 members.",
    "Let's use it.",
]


@each_case("text", CUT_OFF)
def test_a_part_of_a_sentence_is_no_fact(text: str) -> None:
    """What a line break, a bracket or a colon cuts, and what is quoted or points away, is left."""
    assert [draft.text for draft in drafts_of(text)] == []


def test_emphasis_is_not_part_of_a_fact() -> None:
    """The marks of emphasis are left out of the text, and stay in the quote."""
    [draft] = drafts_of("The **staging host** is *heron-2*.")
    assert draft.text == "The staging host is heron-2."
    assert draft.subject == "staging host"
    assert draft.quote == "The **staging host** is *heron-2*."


@pytest.mark.parametrize("text", ["The door code of the studio is 7731.", "The gate code is K-44."])
def test_a_compound_with_an_exact_value_is_a_thing(text: str) -> None:
    """A door's code is a thing of its own, where "the code" points into the conversation."""
    [draft] = drafts_of(text)
    assert draft.text == text


def test_an_order_that_begins_like_a_pronoun_stays_whole() -> None:
    """The first letter of "give" belongs to its word: the rest is no "I've"."""
    [draft] = drafts_of("Always give prices in euros in all quotes.")
    assert draft.text == "The user asks: Always give prices in euros in all quotes."


WORDED = [
    ("My friend, we already agreed on Tuesdays.", "The user says: we already agreed on Tuesdays."),
    ("Never release on Friday.", "The user asks: Never release on Friday."),
    ("Don't call me on Monday.", "The user asks: Don't call me on Monday."),
    ("Kein Release am Freitag.", "Der Nutzer bittet: Kein Release am Freitag."),
    ("Wir nehmen Postgres.", "Der Nutzer sagt: Wir nehmen Postgres."),
]


@each_case(("text", "fact"), WORDED)
def test_a_fact_reads_as_its_language_is_written(text: str, fact: str) -> None:
    """Numerals stay, adverbs are no verbs, nouns keep their case, and a rule's weekday is any."""
    assert [draft.text for draft in drafts_of(text)] == [fact]


UNSAID = [
    "Let's stick with that.",
    "Write me the summary for the landing page.",
    "No time to lose, go on.",
    "Keine Zeit zu verlieren, weiter geht es.",
]


@pytest.mark.parametrize("text", UNSAID)
def test_what_says_nothing_by_itself_is_no_fact(text: str) -> None:
    """Cut-off decisions, requests of the moment and mere urging are left alone."""
    assert drafts_of(text) == ()
