"""Whose a fact is: a person's own, or the project's."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from memtier_plugin.core.errors import NotFound
from memtier_plugin.core.records import Entry, Fact, FactDraft
from memtier_plugin.facts.persons import assign_person, readable_id
from memtier_plugin.memory import MemTier
from tests.cases import each_case

DAY = datetime(2026, 3, 2, 9, tzinfo=UTC)


def said(content: str, sender: str | None = "ann", speaker: str | None = None) -> Entry:
    """Return an entry of the user's."""
    return Entry(
        id="01" + "0" * 24,
        timestamp=DAY,
        session_id="s",
        project="p",
        content=content,
        tokens=1,
        agent_id="main",
        run_id="r",
        turn=1,
        role="user",
        origin="user",
        observed_at=DAY,
        sender=sender,
        speaker=speaker,
        key="k",
    )


def draft(entry: Entry, text: str, subject: str = "user", relation: str = "is") -> FactDraft:
    """Return a draft as an extractor writes it."""
    return FactDraft(
        subject=subject,
        relation=relation,
        value="v",
        text=text,
        sources=(entry.source,),
        quote=entry.content,
    )


def tell(memory: MemTier, sender: str | None, *texts: str) -> None:
    """Record what a sender says, each as a run of its own, and consolidate."""
    for text in texts:
        memory.end_run([{"role": "user", "content": text}], session_id=f"{sender}", sender=sender)
    memory.consolidate()


def texts(memory: MemTier, sender: str | None) -> list[str]:
    """Return the facts that hold for a sender."""
    return [fact.text for fact in memory.facts(sender=sender)]


@each_case(
    ("words", "text"),
    [
        ("I live in Leeds", "The user lives in Leeds."),
        ("Ich wohne in Kiel", "Der Nutzer wohnt in Kiel."),
        ("Vivo en Sevilla", "El usuario vive en Sevilla."),
        ("J'habite à Lille", "L'utilisateur habite à Lille."),
        ("我住在成都", "用户住在成都。"),
    ],
)
def test_what_somebody_says_of_themselves_is_theirs(words: str, text: str) -> None:
    """A statement about the speaker is the sender's own and names them, in any language."""
    entry = said(words)
    own = assign_person(draft(entry, text), [entry], {})
    assert (own.person, own.personal, own.subject) == ("ann", True, "ann")
    assert own.text.startswith("Ann") and "ser" not in own.text and "用户" not in own.text


@each_case(
    ("words", "text", "relation"),
    [
        ("We decided to ship on Friday", "The user decided to ship on Friday.", "decided"),
        ("Wir nehmen Postgres", "Der Nutzer nimmt Postgres.", "uses"),
        ("Hemos elegido Rust, nuestro nuevo lenguaje", "El usuario eligió Rust.", "decided"),
        ("Nous passons à Rust", "L'utilisateur passe à Rust.", "uses"),
        ("我们决定用Rust", "用户决定用Rust。", "decided"),
        ("I own the Otter cluster", "The user owns the Otter cluster.", "has"),
        ("Ich bin für den Parser zuständig", "Der Nutzer ist für den Parser zuständig.", "is"),
        ("Je suis responsable du site", "L'utilisateur est responsable du site.", "is"),
        ("Soy responsable de la web", "El usuario es responsable de la web.", "is"),
        ("我负责部署", "用户负责部署。", "does"),
        ("Never push to main", "The user asks: never push to main.", "never"),
    ],
)
def test_what_is_said_for_several_or_of_the_work_is_shared(
    words: str, text: str, relation: str
) -> None:
    """Decisions, care for things and rules are the project's, with the name of who said it."""
    entry = said(words)
    shared = assign_person(draft(entry, text, relation=relation), [entry], {})
    assert (shared.person, shared.personal) == ("ann", False)
    assert shared.text.startswith("Ann")


@each_case(
    ("words", "subject", "text", "personal"),
    [
        ("My sister Uma plays", "The user's sister", "The user's sister Uma plays.", True),
        ("Our daughter plays", "The user's daughter", "The user's daughter plays.", True),
        ("Our deploys are on Monday", "The user's deploys", "The user's deploys are on ...", False),
        ("Rex is my dog", "Rex", "Rex is the user's dog.", True),
        ("The port is 8443", "the port", "The port is 8443.", False),
    ],
)
def test_possessions(words: str, subject: str, text: str, personal: bool) -> None:
    """What is somebody's is theirs, relatives of several too; things of several are shared."""
    entry = said(words, sender="irc:ann")
    result = assign_person(draft(entry, text, subject), [entry], {"irc:ann": "Annika"})
    assert result.personal is personal and "user" not in result.text + result.subject
    assert personal == ("Annika" in result.text)


def test_how_somebody_wants_to_be_treated_is_theirs() -> None:
    """An instruction about the speaker, or about answers, is personal; others are rules of all."""
    for words in ("Always call me Cap", "Always answer in French", "Always reply in short lines"):
        entry = said(words)
        result = assign_person(
            draft(entry, f"The user asks: {words}.", relation="always"), [entry], {}
        )
        assert result.personal, words


def test_without_a_sender_it_is_the_users() -> None:
    """Where a host names no sender, texts stay as they were and belong to the user."""
    entry = said("I live in Leeds", sender=None)
    own = assign_person(draft(entry, "The user lives in Leeds."), [entry], {})
    assert (own.person, own.personal, own.text) == ("", True, "The user lives in Leeds.")


def test_words_that_speak_of_users_stay() -> None:
    """Somebody who speaks of "the user" means another one."""
    entry = said("I own the user table")
    own = assign_person(draft(entry, "The user owns the user table."), [entry], {})
    assert own.text == "Ann owns the user table."


def test_ids_as_names() -> None:
    """An id that is a name is written as one; any other stays, so that it is stable."""
    assert [readable_id(i) for i in ("ann", "irc:mary-jane", "chat:4711", "U02AB")] == [
        "Ann",
        "Mary Jane",
        "chat:4711",
        "U02AB",
    ]


def test_each_is_told_their_own(home: Path) -> None:
    """Facts of two senders stand side by side; a third is told neither, nor can count them."""
    with MemTier.open(home) as memory:
        tell(memory, "ann", "I live in Leeds.", "We decided to use Postgres.")
        tell(memory, "bob", "I live in Cardiff.")
        assert texts(memory, "ann") == [
            "Ann lives in Leeds.",
            "Ann says: We decided to use Postgres.",
        ]
        assert texts(memory, "bob") == [
            "Ann says: We decided to use Postgres.",
            "Bob lives in Cardiff.",
        ]
        assert (
            texts(memory, "cleo")
            == texts(memory, None)
            == ["Ann says: We decided to use Postgres."]
        )
        hits = memory.recall("Where do I live?", sender="cleo").hits
        assert not [hit for hit in hits if "lives" in hit.text]
        with pytest.raises(NotFound):
            memory.fact(memory.facts(sender="ann")[0].id, sender="bob")
    with MemTier.open(home, agent_id="other") as other:  # ann is ann to every agent
        assert "Ann lives in Leeds." in texts(other, "ann")
        hits = other.recall("Where does Ann live?", sender="ann").hits
        assert "Ann lives in Leeds." in [hit.text for hit in hits]


def test_each_supersedes_their_own(home: Path) -> None:
    """A new value replaces the older one of the same person, and nobody else's."""
    with MemTier.open(home) as memory:
        tell(memory, "ann", "I live in Leeds.")
        tell(memory, "bob", "I live in Cardiff.")
        tell(memory, "ann", "I live in Oslo.")
        tell(memory, None, "I live in Rome.")
        assert texts(memory, "ann") == ["Ann lives in Oslo."]
        assert texts(memory, "bob") == ["Bob lives in Cardiff."]
        assert texts(memory, None) == ["The user lives in Rome."]


def test_what_was_kept_before_there_were_people(home: Path) -> None:
    """An older fact of the user without a person is seen by all, and the user's to replace."""
    with MemTier.open(home) as memory:
        [entry] = memory.record([{"role": "user", "content": "I live in Leeds."}], session_id="s")
        older = Fact(
            id="01" + "0" * 24,
            timestamp=DAY,
            project="default",
            subject="user",
            relation="lives_in",
            value="Leeds",
            text="The user lives in Leeds.",
            sources=(entry.source,),
            valid_from=DAY,
        )
        memory.add_facts([older])
        assert texts(memory, "ann") == texts(memory, None) == ["The user lives in Leeds."]
        tell(memory, "ann", "I live in Oslo.")
        assert "The user lives in Leeds." in texts(memory, None)
        tell(memory, None, "I live in Rome.")
        assert "The user lives in Leeds." not in texts(memory, None)


def test_an_agent_with_the_right_sees_everybodys(home: Path) -> None:
    """`agents.*.read_people` grants an agent the personal facts of all, by their names."""
    with MemTier.open(home) as memory:
        tell(memory, "ann", "I live in Leeds.")
    rights = {"agents.boss.read_people": True}
    with MemTier.open(home, agent_id="boss", settings=rights) as boss:
        assert texts(boss, None) == ["Ann lives in Leeds."]
        hits = boss.recall("Who lives in Leeds?").hits
        assert [hit.text for hit in hits] == ["Ann lives in Leeds."]


def test_linked_senders_are_one_person(home: Path) -> None:
    """What one sender said is told to the other and replaced by it, until they are unlinked."""
    with MemTier.open(home) as memory:
        tell(memory, "ann", "I live in Leeds.", "I prefer tea.")
        tell(memory, "irc:9", "I use Vim.")
        memory.people.link(["ann", "irc:9"])
        assert "Ann lives in Leeds." in texts(memory, "irc:9")
        tell(memory, "irc:9", "I live in Oslo.")
        assert "Ann lives in Leeds." not in texts(memory, "ann")
        assert "irc:9 lives in Oslo." in texts(memory, "ann")
        linked = texts(memory, "ann")
        memory.reindex()
        assert texts(memory, "ann") == linked
        memory.people.unlink(["irc:9"])
        assert texts(memory, "ann") == ["Ann prefers tea."]
        with pytest.raises(NotFound):
            memory.people.link(["ann", "zoe"])


def test_people_are_listed(home: Path) -> None:
    """Everybody who spoke is listed with their names; a name stands for its only bearer."""
    with MemTier.open(home) as memory:
        tell(memory, "irc:9", "My name is Jonas.", "I live in Leeds.")
        tell(memory, None, "I use Vim.")
        jonas, user = sorted(memory.people.everybody(), key=lambda person: person.id)[::-1]
        assert (jonas.id, jonas.names, jonas.lines, jonas.facts) == ("irc:9", ("Jonas",), 2, 2)
        assert (user.id, user.lines, user.facts) == ("@user", 1, 1)
        assert "Jonas lives in Leeds." in texts(memory, "irc:9")
        assert memory.people.link(["Jonas", "@user"]) == ["irc:9", ""]
        assert "Jonas lives in Leeds." in texts(memory, None)


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("Hi, I'm Ida.", "Ida"),
        ("I'm Ida, by the way.", "Ida"),
        ("Hallo, ich bin Ida.", "Ida"),
        ("Ich heiße Ida.", "Ida"),
        ("Hola, soy Lucía.", "Lucía"),
        ("Me llamo Lucía.", "Lucía"),
        ("Je m'appelle Zoé.", "Zoé"),
        ("我叫小明。", "小明"),
        ("I'm German.", None),
        ("Ich bin Arzt.", None),
        ('She said: "My name is Ida."', None),
        ("Is my name Ida?", None),
    ],
)
def test_names_given_in_passing(home: Path, words: str, name: str | None) -> None:
    """An introduction names the sender, in the extractor's languages; a trait is no name."""
    with MemTier.open(home) as memory:
        tell(memory, "irc:9", words)
        tell(memory, "irc:9", "I live in Leeds.")
        [person] = memory.people.everybody()
        assert person.names == ((name,) if name else ())
        assert f"{name or 'irc:9'} lives in Leeds." in texts(memory, "irc:9")


def test_what_somebody_did_to_a_known_thing_is_the_projects(tmp_path: Path) -> None:
    """I moved "the standup" tells of the standup, "my bed" of the speaker."""
    with MemTier.open(tmp_path / "home") as memory:
        tell(memory, "ann", "I moved the standup to 10:30.", "I moved my bed to 12 Mill Lane.")
        [fact] = memory.facts(sender="bob")
        assert (fact.text, fact.relation) == ("Ann moved the standup to 10:30.", "scheduled_for")
        assert len(memory.facts(sender="ann")) == 2


def test_nobody_brings_back_what_they_may_not_name(tmp_path: Path) -> None:
    """A sender cannot unhide what another sender said, any more than hide it."""
    with MemTier.open(tmp_path / "home") as memory:
        tell(memory, "ann", "I live in Porto.")
        [fact] = memory.facts(sender="ann")
        memory.forget(ids=[fact.id], sender="ann")
        with pytest.raises(NotFound):
            memory.knowledge.of_sender("bob").unforget([fact.id])
        assert memory.knowledge.of_sender("ann").unforget([fact.id]).facts == (fact.id,)
        assert [view.id for view in memory.facts(sender="ann")] == [fact.id]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("Ich habe den Zug um 7:42 gebucht.", "Ann sagt: Ich habe den Zug um 7:42 gebucht."),
        ("Vivo en Cádiz.", "Ann dice: Vivo en Cádiz."),
        ("J'habite à Nantes depuis mai 2020.", "Ann dit : J'habite à Nantes depuis mai 2020."),
        ("我对花生过敏。", "Ann说：我对花生过敏。"),
        ("Mi hermana es alérgica al marisco.", "Ann dice: Mi hermana es alérgica al marisco."),
    ],
)
def test_a_fact_is_told_in_the_language_of_its_words(tmp_path: Path, words: str, text: str) -> None:
    """A named sender's own words are told of them, or said in their language, never in two."""
    with MemTier.open(tmp_path / "home") as memory:
        tell(memory, "ann", words)
        assert texts(memory, "ann") == [text]


def test_a_question_about_oneself_is_answered_in_other_words(tmp_path: Path) -> None:
    """What a sender said of themselves is shown to them alone, though asked in other words."""
    with MemTier.open(tmp_path / "home") as memory:
        tell(memory, "ann", "I work as a carpenter.")
        tell(memory, "bob", "I work as a baker.")
        shown = {
            sender: memory.recall(
                "What's my job?", session_id="new", purpose="inject", sender=sender
            ).text
            for sender in ("ann", "cleo")
        }
        assert "carpenter" in shown["ann"] and "baker" not in shown["ann"]
        assert "carpenter" not in shown["cleo"]
