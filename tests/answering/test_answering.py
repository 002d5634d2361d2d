"""Answering questions: with a model over the loopback, and without one; each line is looked up."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from memtier_plugin import MemTier
from memtier_plugin.answering.answerer import EXTRACTIVE, UNANSWERED, Answer
from memtier_plugin.cli.main import main
from memtier_plugin.core.records import FactDraft, Source
from memtier_plugin.providers.prompting import load_prompt
from tests.loopback import Loopback

Day = Callable[..., datetime]
PROMPTS = ("route", "integrate", "plan", "answer", "write_back")
FOUND = {
    "fact": "The user's dog Rex was born in Oslo.",
    "quote": "my dog Rex was born in Oslo",
}
KEEP = {
    "finding": 1,
    "action": "add",
    "target": None,
    "subject": "user's dog Rex",
    "relation": "born_in",
    "value": "Oslo",
    "text": "The user's dog Rex was born in Oslo.",
}


def scripted(**replies: Any) -> Callable[[dict[str, Any]], str | Mapping[str, Any]]:
    """Return a model that answers each prompt as told: a value, or a function of what it reads."""
    usual = {
        "route": {"action": "R"},
        "integrate": {"findings": [FOUND], "missing": ""},
        "plan": {"decision": "DONE", "searches": []},
        "answer": IN_OSLO,
        "write_back": {"keep": []},
    } | replies

    def answer(body: dict[str, Any]) -> str | Mapping[str, Any]:
        system, user = (message["content"] for message in body["messages"])
        [name] = [name for name in PROMPTS if load_prompt(name).text == system]
        reply = usual[name]
        return reply(user) if callable(reply) else reply

    return answer


NOT_ENOUGH = {"enough": False, "answer": "It does not say.", "cites": []}
IN_OSLO = {"enough": True, "answer": "In Oslo.", "cites": [1]}


def from_pages(reply: Any = IN_OSLO) -> Callable[[str], Any]:
    """Return a script that finds no answer in the lines themselves, and this one in findings."""
    return lambda user: reply if f'("{FOUND["quote"]}")' in user else NOT_ENOUGH


def asked_of(server: Loopback) -> list[str]:
    """Return the prompts that came, in order."""
    texts = {load_prompt(name).text: name for name in PROMPTS}
    return [texts[request["body"]["messages"][0]["content"]] for request in server.requests]


def opened(home: Path, server: Loopback | None, **more: Any) -> MemTier:
    settings = dict(more)
    if server:
        settings |= {"endpoints.test.base_url": server.base_url, "ask.model": "endpoint:test/m"}
    return MemTier.open(home, settings=settings)


def record_dog(memory: MemTier, day: Day, *, facts: bool = True, sender: str | None = None) -> str:
    """Record a talk, with a fact if wanted, and return the id of its line on the dog."""
    entries = memory.record(
        [
            {"role": "user", "content": "You know, my dog Rex was born in Oslo, in the rain."},
            {"role": "assistant", "content": "A northern dog then!"},
            {"role": "user", "content": "The parrot Lora eats apples only."},
        ],
        session_id="s",
        observed_at=day(0),
        sender=sender,
    )
    if facts:
        source = Source(agent="main", session="s", entry=entries[0].id)
        memory.add_facts(
            [
                FactDraft(
                    subject="user",
                    relation="dog",
                    value="Rex",
                    text="The user has a dog called Rex.",
                    sources=(source,),
                )
            ]
        )
    return entries[0].id


QUESTION = "Where was the dog Rex born?"


def test_without_a_model_the_lines_answer(home: Path, day: Day) -> None:
    """The answer is made of lines as they stand, says so, and each has its place in the ledger."""
    with opened(home, None) as memory:
        dog = record_dog(memory, day)
        answer = memory.ask(QUESTION)
        assert answer.by == EXTRACTIVE
        assert answer.answered
        assert answer.tokens == 0
        [cited] = [c for c in answer.citations if c.id == dog]
        assert cited.file is not None
        line = (memory.folder / cited.file).read_text("utf-8").splitlines()[cited.line - 1]
        assert json.loads(line)["id"] == dog
        assert cited.short in answer.text
        nothing = memory.ask("zzz qqq")
        assert not nothing.answered or nothing.citations


def test_an_answer_from_the_lines_found(home: Path, day: Day) -> None:
    """Where the lines that were found answer, no page is read; the line is cited as it stands."""
    with Loopback() as server, opened(home, server) as memory:
        dog = record_dog(memory, day)
        server.answers(scripted())
        answer = memory.ask(QUESTION)
        assert (answer.text, answer.answered, answer.route.action) == ("In Oslo.", True, "R")
        assert [c.id for c in answer.citations] == [dog]
        assert answer.pages == ()
        assert asked_of(server) == ["route", "answer", "write_back"]
        assert answer.tokens == server.tokens


def test_an_answer_from_the_log(home: Path, day: Day) -> None:
    """R reads pages, links each finding to its line, cites it, and accounts for every step."""
    with Loopback() as server, opened(home, server) as memory:
        dog = record_dog(memory, day)
        server.answers(scripted(answer=from_pages()))
        answer = memory.ask(QUESTION)
        assert (answer.text, answer.answered, answer.route.action) == ("In Oslo.", True, "R")
        assert answer.by == "test/m"
        assert [c.id for c in answer.citations] == [dog]
        assert answer.citations[0].text == FOUND["quote"]
        assert answer.rounds == 1
        assert len(answer.pages) == 1
        prompts = ["route", "answer", "integrate", "plan", "answer", "write_back"]
        assert asked_of(server) == prompts
        names = [step.name for step in answer.steps]
        assert names[-5:] == ["answer", "integrate 1", "plan 1", "answer", "write back"]
        assert answer.tokens == server.tokens  # the router's own included
        [event] = memory.events(kinds=["ask"])
        assert event.data["citations"] == [dog]
        assert event.data["tokens"] == answer.tokens


def test_an_answer_from_facts(home: Path, day: Day) -> None:
    """S answers from facts alone, and cites the lines that they rest on."""
    with Loopback() as server, opened(home, server) as memory:
        dog = record_dog(memory, day)
        rex = {"enough": True, "answer": "Rex.", "cites": [1]}
        server.answers(scripted(route={"action": "S"}, answer=rex))
        answer = memory.ask("What is the user's dog called?")
        assert answer.route.action == "S"
        assert asked_of(server) == ["route", "answer"]
        [cited] = answer.citations
        assert cited.id == dog
        assert cited.fact is not None
        assert answer.written == ()


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "reply",
    ["S", "Answer: S", '{"action": "s"}', '{"action": "SR"}', '{"route": "S"}', "",
     "<think>surely S", '{"action": "S"', "[]"],
)  # fmt: skip
def test_any_doubt_of_the_router_goes_to_the_log(home: Path, day: Day, reply: str) -> None:
    """Only whole JSON that says S is S: no letter is picked out of a sentence."""
    with Loopback() as server, opened(home, server) as memory:
        record_dog(memory, day)
        server.answers(scripted(route=reply))
        answer = memory.ask(QUESTION)
        assert answer.route.action == "R"
        assert answer.written or "write_back" in asked_of(server)  # of the log alone


@pytest.mark.parametrize(
    "from_facts",
    [{"enough": False, "answer": "It does not say.", "cites": []},
     {"enough": True, "answer": "In Rome.", "cites": []},
     {"enough": True, "answer": "In Rome.", "cites": [7]}, "no idea"],
)  # fmt: skip
def test_facts_that_do_not_answer_after_all(home: Path, day: Day, from_facts: Any) -> None:
    """An answer from facts that is not enough, or cites nothing there is, goes to the log."""
    with Loopback() as server, opened(home, server) as memory:
        record_dog(memory, day)
        answers = iter([from_facts, {"enough": True, "answer": "In Oslo.", "cites": [1]}])
        server.answers(scripted(route={"action": "S"}, answer=lambda user: next(answers)))
        answer = memory.ask(QUESTION)
        assert answer.text == "In Oslo."
        assert answer.route.action == "R"
        assert "the facts did not answer it after all" in answer.route.why


def test_invented_quotes_are_no_findings(home: Path, day: Day) -> None:
    """What no line says is neither cited nor kept; with nothing left the lines answer."""
    invented = {"fact": "Rex was born in Rome.", "quote": "my dog Rex was born in Rome"}
    with Loopback() as server, opened(home, server) as memory:
        record_dog(memory, day)
        answers = scripted(integrate={"findings": [invented], "missing": ""}, answer=from_pages())
        server.answers(answers)
        answer = memory.ask(QUESTION)
        assert answer.by == EXTRACTIVE
        assert "Rome" not in answer.text
        assert answer.rejected == 1
        assert "no quote" in answer.problem
        assert memory.facts()[1:] == []


def test_an_answer_that_cites_nothing_is_not_given(home: Path, day: Day) -> None:
    """Numbers of no finding count for nothing; an answer without a ground is replaced."""
    with Loopback() as server, opened(home, server) as memory:
        record_dog(memory, day)
        rome = {"enough": True, "answer": "In Rome.", "cites": [0, 9]}
        server.answers(scripted(answer=from_pages(rome)))
        answer = memory.ask(QUESTION)
        assert answer.by == EXTRACTIVE
        assert "Rome" not in answer.text
        assert answer.rejected == 2
        assert "no line holds its answer" in answer.problem


def test_a_model_that_finds_no_answer_leads_with_none(home: Path, day: Day) -> None:
    """What a model says although it has not enough is not shown: the nearest lines are."""
    guess = {"enough": False, "answer": "Rex was born in Rome.", "cites": [1]}
    with Loopback() as server, opened(home, server) as memory:
        dog = record_dog(memory, day)
        server.answers(scripted(answer=guess))
        answer = memory.ask(QUESTION)
        assert not answer.answered
        assert "Rome" not in answer.text
        assert answer.text.startswith(UNANSWERED)
        assert dog in {cited.id for cited in answer.citations}
        assert "found no answer" in answer.problem


def test_a_citation_that_holds_nothing_of_the_answer_is_replaced(home: Path, day: Day) -> None:
    """A right answer cites the line that says it, not the one that the model named."""
    with Loopback() as server, opened(home, server) as memory:
        record_dog(memory, day, facts=False)
        shown: list[str] = []

        def answer_from(user: str) -> Any:
            shown.append(user)
            numbers = [n for n, line in enumerate(lines_of(user), 1) if "Oslo" not in line]
            return {"enough": True, "answer": "In Oslo.", "cites": numbers}

        server.answers(scripted(answer=answer_from))
        memory.record(
            [{"role": "user", "content": "Rex the dog was born to bark."}], session_id="t"
        )
        answer = memory.ask(QUESTION)
        assert len(lines_of(shown[0])) > 1
        assert answer.text == "In Oslo."
        assert all("Oslo" in cited.text for cited in answer.citations)


def lines_of(user: str) -> list[str]:
    """Return the numbered lines of a prompt."""
    return [line for line in user.splitlines() if line.startswith("[")]


def test_rounds_are_bounded_and_searches_are_made_once(home: Path, day: Day) -> None:
    """At most three rounds, no plan on the last one, no search and no page twice."""
    searches = [{"kind": "keyword", "text": text} for text in ("Oslo Rex", "rex OSLO")]
    plan = {"decision": "SEARCH", "searches": searches}
    with Loopback() as server, opened(home, server, **{"ask.pages": 1}) as memory:
        record_dog(memory, day)
        for n in range(6):
            memory.record([{"role": "user", "content": f"Oslo again, and the dog, number {n}"}],
                          session_id=f"s{n}")  # fmt: skip
        nothing = {"findings": [], "missing": "all"}
        server.answers(scripted(plan=plan, integrate=nothing, answer=from_pages()))
        answer = memory.ask(QUESTION)
        assert answer.rounds == 3
        prompts = asked_of(server)
        assert prompts.count("integrate") == 3  # pages that wait are read, one a round
        assert prompts.count("plan") == 2
        assert len(set(answer.pages)) == len(answer.pages) == 3
        plans = [r["body"]["messages"][1]["content"] for r in server.requests
                 if r["body"]["messages"][0]["content"] == load_prompt("plan").text]  # fmt: skip
        assert plans[1].count("keyword: ") == 1


def test_a_page_too_long_is_read_in_halves(home: Path, day: Day) -> None:
    """Pages that the model cannot read at once are read in parts, and nothing of them is lost."""
    with Loopback() as server, opened(home, server) as memory:
        record_dog(memory, day)
        for n in range(4):
            long = f"the dog Rex was born in {n} " + "and barked loudly " * 150
            memory.record([{"role": "user", "content": long}], session_id=f"s{n}")
        server.context = 9_000
        integrated = {"findings": [FOUND], "missing": ""}
        server.answers(
            scripted(integrate=lambda user: integrated if FOUND["quote"] in user
                     else {"findings": [], "missing": ""}, answer=from_pages())
        )  # fmt: skip
        answer = memory.ask(QUESTION)
        assert answer.text == "In Oslo."
        assert len(answer.pages) == 5


@pytest.mark.parametrize("fault", ["500", "429", "truncated", "page", "close", "400"])
def test_an_endpoint_that_fails(
    home: Path, day: Day, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that cannot be asked leaves an answer of lines, and the reason."""
    monkeypatch.setattr("memtier_plugin.providers.endpoint.FIRST_PAUSE", 0.01)
    with Loopback() as server, opened(home, server) as memory:
        dog = record_dog(memory, day)
        server.always(fault)
        answer = memory.ask(QUESTION)
        assert answer.by == EXTRACTIVE
        assert "127.0.0.1" in answer.problem
        assert dog in {c.id for c in answer.citations}


def test_what_may_be_spent_is_a_limit(home: Path, day: Day) -> None:
    """Calls beyond the day's cap are not made, and the answer says why."""
    with (
        Loopback() as server,
        opened(home, server, **{"consolidation.max_calls_per_day": 1}) as memory,
    ):
        record_dog(memory, day)
        server.answers(scripted())
        answer = memory.ask(QUESTION)
        assert answer.by == EXTRACTIVE
        assert "calls" in answer.problem
        assert asked_of(server) == ["route"]
        assert answer.tokens == server.tokens


def test_nobody_is_told_anothers_words(home: Path, day: Day) -> None:
    """Neither pages nor citations hold what another sender said, whatever the facts rest on."""
    with Loopback() as server, opened(home, server) as memory:
        record_dog(memory, day, sender="ann")
        server.answers(scripted(route={"action": "S"}))
        for answer in (memory.ask(QUESTION, sender="bob"), memory.ask(QUESTION)):
            assert {cited.who for cited in answer.citations} <= {"fact"}
            assert answer.pages == ()
            assert not any("Oslo" in cited.text for cited in answer.citations)
        read = json.dumps([request["body"] for request in server.requests])
        assert "in the rain" not in read
        assert memory.ask(QUESTION, sender="ann").citations


def test_a_shared_fact_can_be_cited_by_others(home: Path, day: Day) -> None:
    """Facts are the project's: another agent's answer cites the fact, never the line behind it."""
    with opened(home, None) as memory:
        dog = record_dog(memory, day)
    with MemTier.open(home, agent_id="other") as memory:
        answer = memory.ask("Does the user have a dog called Rex?")
        [cited] = answer.citations
        assert cited.id == cited.fact != dog
        assert cited.file is not None
        assert cited.file.startswith("semantic")
        assert "Oslo" not in answer.text


def written_texts(answer: Answer) -> list[str]:
    return [fact.text for fact in answer.written]


def test_findings_are_written_back(home: Path, day: Day) -> None:
    """What the answer rests on becomes a fact with its quote, span, model and source."""
    with Loopback() as server, opened(home, server) as memory:
        dog = record_dog(memory, day)
        server.answers(scripted(write_back={"keep": [KEEP]}, answer=from_pages()))
        answer = memory.ask(QUESTION)
        [fact] = answer.written
        assert [s.entry for s in fact.sources] == [dog]
        assert (fact.extractor, fact.model, fact.quote) == ("ask", "test/m", FOUND["quote"])
        assert fact.prompt_hash == load_prompt("write_back").hash
        assert fact.run == f"ask-{answer.id}"
        assert memory.fact(fact.id)[0].text == KEEP["text"]
        again = memory.ask(QUESTION)
        assert written_texts(again) == []  # it is known already


def add_fact_of_another(memory: MemTier, text: str) -> FactDraft:
    """Add a fact that another agent's words prove, and return it."""
    source = Source(agent="other", session="t", entry="elsewhere")
    draft = FactDraft(
        subject="dog", relation="is", value="at home", text=text, sources=(source,),
        origin="assistant",
    )  # fmt: skip
    memory.add_facts([draft])
    return draft


def test_a_refused_update_rests_on_its_own_lines(home: Path, day: Day) -> None:
    """Where a model may not replace a fact, what it would put there cites none of that one's."""
    with Loopback() as server, opened(home, server) as memory:
        dog = record_dog(memory, day, facts=False)
        other = add_fact_of_another(memory, "The dog Rex was born at home.")
        server.answers(scripted(write_back={"keep": [{**KEEP, "action": "update", "target": 1}]}))
        [fact] = memory.ask(QUESTION).written
        assert [source.entry for source in fact.sources] == [dog]
        [kept] = [view for view in memory.knowledge.facts() if view.fact.text == other.text]
        assert kept.fact.status == "active"


def test_what_may_be_updated_is_found_by_meaning(home: Path, day: Day) -> None:
    """The model is shown the nearest facts, also one that shares no word with the finding."""
    shown: list[str] = []
    with (
        Loopback() as server,
        opened(home, server, **{"embedding.model": "default"}) as memory,
    ):
        record_dog(memory, day, facts=False)
        add_fact_of_another(memory, "A puppy needs vaccination.")
        server.answers(scripted(write_back=lambda user: shown.append(user) or {"keep": []}))
        memory.ask(QUESTION)
    assert "A puppy needs vaccination." in shown[0]


def test_at_most_two_findings_are_kept(home: Path, day: Day) -> None:
    """However many the model wants to keep, two become facts; none on anything unclear."""
    many = [{**KEEP, "relation": f"r{n}", "value": "Oslo"} for n in range(5)]
    with Loopback() as server, opened(home, server) as memory:
        record_dog(memory, day)
        server.answers(scripted(write_back={"keep": many}))
        assert len(memory.ask(QUESTION).written) <= 2
    for reply in ("I would keep them all", {"keep": [{**KEEP, "action": "skip"}]},
                 {"keep": [{**KEEP, "finding": 4}]}, {"keep": [{"finding": 1}]},
                 {"keep": [{**KEEP, "action": "update", "target": 99}]}):  # fmt: skip
        with Loopback() as server, opened(home, server) as memory:
            server.answers(scripted(write_back=reply))
            assert memory.ask(QUESTION).written == ()


def test_a_fact_that_says_something_else_is_not_kept(home: Path, day: Day) -> None:
    """A kept text is held against the line again: another value than the line's makes no fact."""
    lie = {**KEEP, "value": "Rome", "text": "The user's dog Rex was born in Rome."}
    with Loopback() as server, opened(home, server) as memory:
        record_dog(memory, day)
        server.answers(scripted(write_back={"keep": [lie]}))
        assert all(fact.status == "proposed" for fact in memory.ask(QUESTION).written)


@pytest.mark.parametrize(("promote", "statuses"), [("none", []), ("propose", ["proposed"])])
def test_rights_hold_for_what_is_written_back(
    home: Path, day: Day, promote: str, statuses: list[str]
) -> None:
    """The agent whose line it is decides what may become of it."""
    with Loopback() as server, opened(home, server, **{"agents.main.promote": promote}) as memory:
        record_dog(memory, day)
        server.answers(scripted(write_back={"keep": [KEEP]}))
        assert [fact.status for fact in memory.ask(QUESTION).written] == statuses


def test_foreign_text_waits_for_review(home: Path, day: Day) -> None:
    """What a tool said may answer, but is kept as a proposal at most."""
    with Loopback() as server, opened(home, server) as memory:
        memory.record(
            [{"role": "user", "content": "look up Rex"},
             {"role": "tool", "content": "register: my dog Rex was born in Oslo",
              "tool": {"name": "web", "ok": True}}],
            session_id="s",
        )  # fmt: skip
        server.answers(scripted(write_back={"keep": [KEEP]}))
        assert all(fact.status == "proposed" for fact in memory.ask(QUESTION).written)


def test_write_back_can_be_left_out(home: Path, day: Day) -> None:
    """By the call or by the setting, nothing is kept and no model is asked to."""
    with Loopback() as server, opened(home, server) as memory:
        record_dog(memory, day)
        server.answers(scripted(write_back={"keep": [KEEP]}))
        assert memory.ask(QUESTION, write_back=False).written == ()
        assert "write_back" not in asked_of(server)
    with Loopback() as server, opened(home, server, **{"ask.write_back": False}) as memory:
        server.answers(scripted(write_back={"keep": [KEEP]}))
        assert memory.ask(QUESTION).written == ()
        assert written_texts(memory.ask(QUESTION, write_back=True)) == [KEEP["text"]]


def test_a_paused_project_answers_nothing(home: Path, day: Day) -> None:
    """While a project is off, no model is asked and nothing is journalled."""
    with Loopback() as server, opened(home, server) as memory:
        record_dog(memory, day)
        memory.pause()
        answer = memory.ask(QUESTION)
        assert (answer.by, answer.citations) == (EXTRACTIVE, ())
        assert server.count() == 0


def test_the_command(home: Path, day: Day) -> None:
    """`memtier ask` shows the answer and its lines, and as JSON everything else, too."""
    with opened(home, None) as memory:
        dog = record_dog(memory, day)
    run = CliRunner().invoke(main, ["ask", QUESTION, "--project", "default"])
    assert run.exit_code == 0, run.output
    assert "born in Oslo" in run.output
    assert dog[-8:] in run.output
    assert "no model is configured" in run.output
    run = CliRunner().invoke(main, ["ask", QUESTION, "--project", "default", "--json"])
    document = json.loads(run.output)
    assert dog in [cited["id"] for cited in document["citations"]]
    assert {"route", "steps", "tokens", "by", "written", "problem"} <= document.keys()
