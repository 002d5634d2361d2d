"""A correction is made once: its rule stands before the next like task, and before no other."""

from __future__ import annotations

from pathlib import Path

from memtier_plugin.core.records import CORRECTED, Fact
from memtier_plugin.memory import MemTier
from memtier_plugin.retrieval.dialogue_acts import asks_for_work, ends_rule, sets_rule
from tests.builders import turns
from tests.cases import each_case

RULE = "No, never use yarn here. Use pnpm."
CORRECTION = ("Add the date library.", "Done: yarn add dayjs.", RULE, "Understood.")
LIKE, UNLIKE = "Install lodash for the reports page.", "Which painter made the Night Watch?"


def record(memory: MemTier, *texts: str, session: str = "s", **more: str) -> None:
    """Record what the user and the assistant say in turn, each exchange in a run of its own."""
    for number in range(0, len(texts), 2):
        run = f"{session}-{number}"
        memory.end_run(turns(*texts[number : number + 2]), session_id=session, run_id=run, **more)


def block(memory: MemTier, prompt: str, **more: str) -> list[str]:
    """Return the lines before a prompt of a new session."""
    recall = memory.recall(prompt, purpose="inject", session_id="new", **more)  # type: ignore[arg-type]
    return [hit.text for hit in recall.injected]


def rules(memory: MemTier) -> list[Fact]:
    """Return the rules in force."""
    return [fact for fact in memory.facts() if fact.relation == CORRECTED]


def test_before_a_like_task(home: Path) -> None:
    """The rule leads the block of a like task, in the user's own words, and only of such a one."""
    with MemTier.open(home, "p", "a") as memory:
        record(memory, *CORRECTION)
        memory.consolidate()
        assert block(memory, LIKE)[:1] == [RULE]
        assert not {RULE}.intersection(block(memory, UNLIKE), block(memory, "thanks!"))
        recall = memory.recall(LIKE, purpose="inject", session_id="new")
        [first, *_] = recall.injected
        assert first.signals["like"] > 0.5
        assert memory.explain(recall.id)["injected"][0]["signals"].keys() == {"like"}
        [rule] = memory.knowledge.person.rules()
        assert (rule.fact.text, rule.times, rule.shown) == (RULE, 1, 2)


def test_the_workspace_has_the_last_word(home: Path, tmp_path: Path) -> None:
    """Where the workspace has instructions of its own, a rule says so; no other line does."""
    empty, folder = tmp_path / "empty", tmp_path / "shop"
    empty.mkdir()
    (folder / ".claude").mkdir(parents=True)
    (folder / ".claude" / "CLAUDE.md").write_text("Use bun.", "utf-8")
    with MemTier.open(home, "p", "a") as memory:
        record(memory, "The reports page lists lodash as a wish.", "Noted.", session="r")
        record(memory, *CORRECTION)
        memory.consolidate()
    for workspace, note in ((empty, ""), (folder, "unless .claude/CLAUDE.md says otherwise")):
        with MemTier.open(home, "p", "a", workspace=workspace) as memory:
            shown = memory.recall(LIKE, purpose="inject", session_id=workspace.name).injected
            assert len(shown) > 1
            assert [hit.note for hit in shown] == [note, *[""] * (len(shown) - 1)]


def test_without_vectors(home: Path) -> None:
    """A project without an embedding model has its rules before a like task, too."""
    with MemTier.open(home, "p", "a", {"embedding.model": "none"}) as memory:
        record(memory, *CORRECTION)
        memory.consolidate()
        assert block(memory, LIKE)[:1] == [RULE]


def test_all_agents_of_a_project_obey(home: Path) -> None:
    """Another agent gets the rule, and not a word of the request that it corrected."""
    with MemTier.open(home, "p", "a") as memory:
        record(memory, *CORRECTION)
        memory.consolidate()
    with MemTier.open(home, "p", "b") as other:
        assert block(other, LIKE) == [RULE]
        assert "dayjs" not in other.recall(LIKE, purpose="inject", session_id="x").text


def test_a_habit_stays_with_its_person(home: Path) -> None:
    """What one person wants for themselves is told to nobody else, a project's rule to all."""
    habit = "I only travel second class, remember that."
    with MemTier.open(home, "p", "a") as memory:
        record(memory, "Book the train.", "Booked first class.", habit, "Okay.", sender="ann")
        record(memory, *CORRECTION, session="t", sender="ann")
        memory.consolidate()
        assert any(
            habit in line
            for line in block(
                memory, "Get us to Bern by train on Friday, two adults.", sender="ann"
            )
        )
        shown = block(memory, "Get us to Bern by train on Friday, two adults.", sender="bob")
        assert not any(habit in line for line in shown)
        assert block(memory, LIKE, sender="bob") == [RULE]


def test_a_confidence_is_a_rule_for_its_own_speaker_alone(home: Path) -> None:
    """Of a confidence no fact is made, yet its own agent follows it."""
    secret = "Hey, between us: never mail the landlord about the dog, ask me first!"
    with MemTier.open(home, "p", "a") as memory:
        record(memory, "Mail the landlord.", "Sent: the dog ...", secret, "Okay.")
        memory.consolidate()
        assert rules(memory) == []
        assert secret in block(memory, "Write a mail to the landlord.")
    with MemTier.open(home, "p", "b") as other:
        assert block(other, "Write a mail to the landlord.") == []


def test_it_answers_what_the_assistant_did(home: Path) -> None:
    """The same words at the beginning of a session correct nothing."""
    with MemTier.open(home, "p", "a") as memory:
        record(memory, RULE, "Okay.")
        memory.consolidate()
        assert rules(memory) == []


def test_a_request_of_an_earlier_pass_counts(home: Path) -> None:
    """A correction is known as one also where what it answers was consolidated before it."""
    with MemTier.open(home, "p", "a") as memory:
        record(memory, *CORRECTION[:2])
        memory.consolidate()
        memory.end_run(turns(*CORRECTION[2:]), session_id="s", run_id="later")
        memory.consolidate()
        assert [rule.text for rule in rules(memory)] == [RULE]


def test_withdrawal(home: Path) -> None:
    """Words that take a rule back end it, and what else it stated, and no other rule."""
    kept = "Never edit an old migration, add a new one."
    with MemTier.open(home, "p", "a") as memory:
        record(memory, *CORRECTION)
        record(memory, "Add a column.", "I edited migration 7.", kept, "Okay.", session="t")
        memory.consolidate()
        assert {rule.text for rule in rules(memory)} == {RULE, kept}
        record(
            memory, "Forget the rule about yarn and pnpm, yarn is fine again.", "Okay.", session="u"
        )
        memory.consolidate()
        assert [rule.text for rule in rules(memory)] == [kept]
        assert RULE not in block(memory, LIKE)


def test_a_reworded_rule(home: Path) -> None:
    """In a person's new words a rule still stands before the tasks that its first words met."""
    with MemTier.open(home, "p", "a") as memory:
        record(memory, *CORRECTION)
        memory.consolidate()
        for words in ("Only pnpm here.", "Only pnpm here, of version 9."):
            memory.knowledge.person.reword(rules(memory)[0].id, words)
            assert block(memory, LIKE)[:1] == [words]


def test_forgetting(home: Path) -> None:
    """With its line a rule is forgotten."""
    with MemTier.open(home, "p", "a") as memory:
        record(memory, *CORRECTION)
        memory.consolidate()
        memory.forget(ids=[rules(memory)[0].sources[0].entry])
        assert rules(memory) == []
        assert RULE not in block(memory, LIKE)


def test_the_same_after_a_rebuild(home: Path) -> None:
    """A rebuilt index gives the same block."""
    with MemTier.open(home, "p", "a") as memory:
        record(memory, *CORRECTION)
        memory.consolidate()
        before = block(memory, LIKE)
        memory.reindex()
        assert block(memory, LIKE) == before


@each_case(
    "text",
    [
        "Please stop apologising in every message.",
        "Rebase instead of merge, please.",
        "Nein, immer zuerst die Tests laufen lassen.",
        "Non, jamais sans ma validation.",
        "No, siempre con factura.",
        "提交之前必须先跑测试。",
    ],
)
def test_what_is_a_rule(text: str) -> None:
    """What holds for any such work is one."""
    assert sets_rule(text)


@each_case(
    "text",
    [
        "No, the other file, the one from yesterday.",
        "Thanks, that fixed it.",
        "This time with more salt.",
        "Pardon, je voulais dire la troisième ligne.",
        "Now write a test for it.",
        "The database is postgres://harbor:[redacted:url-password]@db.internal/harbor.",
        "Our wiki: https://wiki.firm.example",
        "Die Doku liegt unter https://docs.firma.example.",
        "不是这个，是另一个。",
        "You can use tabs again.",
        "Good. Add a dark theme to the settings screen next.",
        "Now rename the exporter to ReportWriter and run the suite.",
        "Please mail Ferro that the second pallet is on its way.",
        "Put the invoice of October into the folder for the accountant.",
        "Find us a table for six near the station on Saturday.",
        "Make the heading bigger and move the logo to the left.",
    ],
)
def test_what_is_no_rule(text: str) -> None:
    """A slip, thanks, this once, the next task, an address and a withdrawal are none."""
    assert not sets_rule(text)


def test_what_ends_a_rule() -> None:
    """Permission given back ends one."""
    assert ends_rule("You can use tabs again.")
    assert not ends_rule("Never use tabs.")


@each_case(
    ("prompt", "is_work"),
    [
        ("We need a table of last month's refunds by warehouse.", True),
        ("the nightly import is red again, have a look", True),
        ("Schreib Frau Keller, dass wir den Termin verschieben.", True),
        ("How many ounces are in a pound?", False),
        ("ok, go on", False),
        ("Where does the spare key hang?", False),
        ("Could you put the three invoices into one PDF?", True),
        ("Would you mind renaming the branch to match the ticket?", True),
        ("Kannst du den Bericht noch auf eine Seite kürzen?", True),
        ("Do you know which port the broker listens on?", False),
        ("Is the second flight cheaper on Tuesdays?", False),
        ("?", False),
        ("", False),
    ],
)
def test_what_asks_for_work(prompt: str, is_work: bool) -> None:
    """Rules stand before work on the user's own things, and before nothing else."""
    assert asks_for_work(prompt) == is_work


def test_how_often_shown(home: Path) -> None:
    """A rule is counted as shown for each block that it stood in, not for other recalls."""
    with MemTier.open(home, "p", "a") as memory:
        record(memory, *CORRECTION)
        memory.consolidate()
        for purpose in ("inject", "inject", "search"):
            memory.recall(LIKE, purpose=purpose, session_id="later")
        [rule] = memory.knowledge.person.rules()
        assert (rule.times, rule.shown) == (1, 2)


@each_case(
    ("later", "again"),
    [
        ("Yarn again! I told you: pnpm.", 1),
        ("Don't put build tools among the dependencies.", 0),
        ("Thanks, the page looks good.", 0),
    ],
)
def test_a_rule_is_said_again(home: Path, later: str, again: int) -> None:
    """Where a user repeats a rule that the run had before it, the list of rules says so."""
    with MemTier.open(home, f"p{len(later)}", "a") as memory:
        record(memory, *CORRECTION)
        memory.consolidate()
        assert block(memory, LIKE)[:1] == [RULE]
        record(memory, LIKE, "Done: yarn add lodash.", later, "Sorry.", session="new")
        memory.consolidate()
        counts = {rule.fact.text: rule.again for rule in memory.knowledge.person.rules()}
        assert counts.pop(RULE) == again
        assert not any(counts.values())


def test_elsewhere_nothing_is_said_again(home: Path) -> None:
    """A rule that is repeated where nobody had been shown it was not ignored."""
    with MemTier.open(home, "p", "a") as memory:
        record(memory, *CORRECTION)
        record(memory, LIKE, "Done: yarn add lodash.", RULE, "Sorry.", session="t")
        memory.consolidate()
        assert [(rule.times, rule.again) for rule in memory.knowledge.person.rules()] == [(2, 0)]
