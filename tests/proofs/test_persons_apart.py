"""Two persons behind one agent: nothing of Ben's is shown to Ann, and nothing of his is hidden.

Every public method of every door is in a table here, found by reflection: a new one fails until it
says whose it is.  Those that are asked for a person are called as Ann with every id, session, run
and recall of Ben's, and with Ann's own.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from memtier_plugin.async_memory import AsyncMemTier
from memtier_plugin.core.errors import MemTierError
from memtier_plugin.core.results import RunContext
from memtier_plugin.facts.service import FactService
from memtier_plugin.hooks.chat_commands import COMMANDS, answer_command
from memtier_plugin.hooks.tools import CLIENT_TOOLS, TOOLS, call_tool
from memtier_plugin.memory import MemTier
from memtier_plugin.pool import memory_pool
from memtier_plugin.server.access import METHODS as TCP_METHODS
from memtier_plugin.server.access import Access, Grant
from memtier_plugin.server.methods import HOOKS, METHODS, Methods
from memtier_plugin.server.requests import check_arguments, to_jsonable
from tests.builders import turns

AGENT: Final = "web"
PRIVATE: Final = ("walrus", "Leeds", "Quint", "tangerine")  # words that only Ben's lines have
SETTINGS: Final = {"embedding": {"model": "none"}, "consolidation": {"enabled": False}}

_LONG_AGO: Final = datetime(2020, 1, 1, tzinfo=UTC)

_Calls = list[Callable[[], Any]]
_Made = Callable[[Any, "World"], _Calls]


@dataclass(frozen=True)
class Names:
    """What one person's things are called."""

    session: str
    run: str
    recall: str
    entries: tuple[str, ...]
    facts: tuple[str, ...]


@dataclass(frozen=True)
class World:
    """A home in which Ann and Ben spoke to one agent."""

    home: Path
    ann: Names
    ben: Names

    @property
    def ids(self) -> list[str]:
        """Everybody's entries and facts."""
        return [*self.ben.entries, *self.ben.facts, *self.ann.entries, *self.ann.facts]


def _speak(memory: MemTier, person: str, *texts: str) -> Names:
    session, run = f"s{person}", f"r{person}"
    memory.end_run(turns(*texts), session_id=session, run_id=run, sender=person)
    about = memory.recall(
        texts[0], session_id=session, run_id=run + "2", purpose="offer", sender=person
    )
    own = tuple(e.id for e in memory.entries() if e.sender == person)
    return Names(session, run + "2", about.id, own, ())


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Return a world that is copied for each call."""
    home = tmp_path_factory.mktemp("persons") / "home"
    home.mkdir(mode=0o700)
    (home / "config.yaml").write_text(yaml.safe_dump(SETTINGS))
    with MemTier.open(home, "shop", AGENT) as memory:
        ben = _speak(
            memory,
            "ben",
            "The walrus guards my locker. We decided to use Postfix for mail.",
            "I live in Leeds.",
        )
        ann = _speak(memory, "ann", "We decided to use Caddy for the proxy.", "I live in Porto.")
        memory.remember("The boat key is under the tangerine crate.", sender="ben", private=True)
        memory.remember("The tailor is called Quint.", sender="ben", by="assistant")
        memory.ask("Who is the tailor, was it Quint?", sender="ben", session_id="sben")
        memory.consolidate()
        names = []
        for person, known in (("ann", ann), ("ben", ben)):
            entries = tuple(e.id for e in memory.entries() if e.sender == person)
            facts = tuple(
                view.fact.id
                for view in memory.knowledge.person.facts(include_superseded=True)
                if {s.entry for s in view.fact.sources} <= set(entries)
            )
            assert facts
            names.append(Names(known.session, known.run, known.recall, entries, facts))
    return World(home, *names)


@pytest.fixture
def world(template: World, tmp_path: Path) -> Iterator[World]:
    """Return a copy of the world."""
    home = tmp_path / "copy"
    shutil.copytree(template.home, home)
    yield World(home, template.ann, template.ben)
    memory_pool.close()


def view_of_ben(world: World) -> str:
    """Return all that Ben sees of his own, as text."""
    with MemTier.open(world.home, "shop", AGENT) as memory:
        knowledge = memory.knowledge.of_sender("ben")
        recalls = [
            [hit.id for hit in memory.recall(words, sender="ben", session_id="new").hits]
            for words in ("walrus locker", "Where do I live?", "Postfix mail", "tangerine crate")
        ]
        documents = [
            knowledge.fact(view.fact.id).to_document()
            for view in knowledge.facts(include_superseded=True)
            if view.fact.id in world.ben.facts
        ]
        # That a model asks to forget a fact of all is for Ben, too, to decide.
        waiting = [item.id for item in knowledge.review_queue() if item.kind != "forget"]
        own = memory.explain(world.ben.recall, sender="ben")
        about = [own["purpose"], own["credits"], own["query"]]
        with memory.store.session() as reader:
            stored = reader.items(world.ben.entries)
        private = [stored[identity].state.private for identity in world.ben.entries]
    return json.dumps(to_jsonable([recalls, documents, waiting, about, private]), default=str)


def shown(answer: Any) -> str:
    """Return all that an answer says, as text."""
    if isinstance(answer, Iterator):
        answer = list(answer)
    return json.dumps(to_jsonable(answer), default=repr, ensure_ascii=False)


def check(world: World, calls: _Calls) -> None:
    """Call as Ann, and compare what is said to her, and what Ben sees before and after."""
    before = view_of_ben(world)
    answers = []
    for call in calls:
        try:
            answers.append(shown(call()))
        except MemTierError as error:
            answers.append(str(error))
    memory_pool.close()
    leaked = [word for word in PRIVATE for text in answers if word.casefold() in text.casefold()]
    assert not leaked, (leaked, [t[:2000] for t in answers if any(w in t for w in PRIVATE)])
    assert view_of_ben(world) == before


# Whose a method is: a way to call it as Ann, or why it is asked for nobody in particular.
AT_THE_MACHINE: Final = "for the person at the machine; no door gives it to a client"
OF_ALL: Final = "of the project; says nothing of anybody"


def each(*calls: Callable[[Any, World, Names], Any]) -> _Made:
    """Return calls with what is Ben's, and with what is Ann's."""

    def run(target: Any, world: World) -> _Calls:
        return [
            (lambda call=call, names=names: call(target, world, names))
            for call in calls
            for names in (world.ben, world.ann)
        ]

    return run


def by_id(call: Callable[[Any, str], Any], *, facts: bool = False) -> _Made:
    """Return a call with every id there is."""

    def run(target: Any, world: World) -> _Calls:
        ids = [*world.ben.facts, *world.ann.facts] if facts else world.ids
        return [(lambda identity=identity: call(target, identity)) for identity in ids]

    return run


def _names(text: str) -> list[str]:
    return text.split()


QUERY: Final = "locker, tailor, boat key, Postfix mail, proxy: where do I live?"

API: Final[Mapping[str, _Made | str]] = {
    "record": each(
        lambda m, _, n: m.record(
            turns("Keep all of this chat between us."),
            session_id=n.session,
            run_id=n.run + "x",
            sender="ann",
        )
    ),
    "end_run": each(
        lambda m, _, n: m.end_run(
            turns("Postfix it is."), session_id=n.session, run_id=n.run, sender="ann"
        ),
        lambda m, _, n: m.end_run(
            turns("Yes."), session_id=n.session, recall_ids=[n.recall], sender="ann"
        ),
    ),
    "recall": each(
        lambda m, _, n: m.recall(QUERY, session_id=n.session, run_id=n.run, sender="ann", k=50),
        lambda m, _, n: m.recall("Where was it?", session_id=n.session, sender="ann"),
    ),
    "ask": each(
        lambda m, _, n: m.ask("Where is he?", session_id=n.session, sender="ann"),
        lambda m, _, n: m.ask(QUERY, session_id=n.session, sender="ann"),
    ),
    "acknowledge": each(lambda m, _, n: m.acknowledge(n.recall, sender="ann")),
    "explain": each(
        lambda m, _, n: m.explain(n.recall, sender="ann"),
        lambda m, w, n: [m.explain(w.ann.recall, i, sender="ann") for i in n.entries + n.facts],
    ),
    "why": each(
        lambda m, _, n: m.why(QUERY, "Where is he?", sender="ann"),
        lambda m, w, n: [m.why(i, QUERY, sender="ann") for i in n.entries + n.facts],
    ),
    "remember": each(
        lambda m, _, n: m.remember("The quay is wet.", session_id=n.session, sender="ann")
    ),
    "edit_fact": by_id(lambda m, i: m.edit_fact(i, "No.", sender="ann"), facts=True),
    "make_private": each(lambda m, _, n: m.make_private(n.session, sender="ann")),
    "forget": lambda m, w: [
        *by_id(lambda m, i: m.forget(ids=[i], sender="ann"))(m, w),
        *each(lambda m, _, n: m.forget(session=n.session, sender="ann"))(m, w),
    ],
    "facts": each(
        lambda m, _, _n: m.facts(sender="ann"),
        lambda m, _, _n: m.facts(include_superseded=True, sender="ann"),
    ),
    "fact": by_id(lambda m, i: m.fact(i, sender="ann")),
    "knowledge": lambda m, w: [
        call
        for name, made in SERVICE.items()
        if not isinstance(made, str)
        for call in made(m.knowledge.of_sender("ann"), w)
    ],
    "viewer": each(lambda m, _, _n: m.viewer("ann")),
    "search_stores": "tested by the tool memtier_search with `store`",
    **dict.fromkeys(
        _names("""actor add_facts catch_up consolidate count_new doctor editor entries events
        expire_recalls follow has_session history people purge
        purger purges record_again record_sessions reembedding regression reindex repair retain
        store summariser unforget working"""),
        AT_THE_MACHINE,
    ),
    **dict.fromkeys(
        _names("""close folder note_hook note_hook_begun note_usage open pause paused
        refresh_workspace release resume status synchronise warm_up"""),
        OF_ALL,
    ),
}
SERVICE: Final[Mapping[str, _Made | str]] = {
    "facts": each(
        lambda k, _, _n: k.facts(include_superseded=True),
        lambda k, _, _n: k.facts(subject="Ben"),
    ),
    "fact": by_id(lambda k, i: k.fact(i).to_document()),
    "facts_by_id": each(lambda k, w, _n: k.facts_by_id(w.ids)),
    "search": each(lambda k, _, _n: k.search(QUERY, 50)),
    "timeline": each(*(lambda k, _, _n, s=s: k.timeline(s) for s in ("Ben", "ben", "tailor"))),
    "diff": each(lambda k, _, _n: k.diff(_LONG_AGO)),
    "rules": each(lambda k, _, _n: [rule.to_json() for rule in k.rules()]),
    "todo": each(lambda k, _, _n: [each.to_json() for each in k.todo()]),
    "close": by_id(lambda k, i: k.close(i), facts=True),
    "proposals": each(lambda k, _, _n: k.proposals()),
    "review_queue": each(lambda k, _, _n: k.review_queue()),
    "accept": by_id(lambda k, i: k.accept([i])),
    "reject": by_id(lambda k, i: k.reject([i])),
    "edit": by_id(lambda k, i: k.edit(i, "No."), facts=True),
    "reword": by_id(lambda k, i: k.reword(i, "No, it is Exim."), facts=True),
    "propose_forget": each(lambda k, _, _n: k.propose_forget([])),
    "forget": by_id(lambda k, i: k.forget(ids=[i])),
    "unforget": by_id(lambda k, i: k.unforget([i])),
    "remember": "tested by MemTier.remember",
    "of_sender": "the one place itself",
    **dict.fromkeys(
        ("add", "consolidate", "full_id", "person", "revert", "review_id", "runs"),
        AT_THE_MACHINE,
    ),
    "user_asks_to_forget": "tells no words; of what a session says, for the tool memtier_forget",
}
RPC: Final[Mapping[str, Any]] = {
    "hook": [
        {
            "name": name,
            "event": {"messages": turns(QUERY)} | ({"prompt": QUERY} if "prompt" in name else {}),
            "context": "context",
        }
        for name in HOOKS
    ],
    "tool": [
        {"name": name, "arguments": arguments, "context": "context"}
        for name in [*TOOLS, *CLIENT_TOOLS]
        for arguments in (
            {"query": QUERY},
            {"query": "locker", "store": "turns"},
            {"query": "tailor", "store": "facts"},
            {"id": "id"},
            {"ids": ["id"]},
            {"recall": "recall"},
            {},
        )
    ],
    "command": [
        {"text": text, "context": "context"}
        for text in ("status", "review", "review accept id", "review reject id", "private")
    ],
    "recall": [{"query": QUERY, "session_id": "session", "k": 50}],
    "ask": [{"question": QUERY}, {"question": "Where is he?", "session_id": "session"}],
    "explain": [{"recall_id": "recall"}, {"recall_id": "recall", "why": "id"}],
    "record": [{"messages": turns("Hm."), "session_id": "session", "run_id": "run"}],
    "end_run": [
        {"messages": turns("Hm."), "session_id": "session", "run_id": "run"},
        {"messages": turns("Hm."), "session_id": "session", "recall_ids": ["recall"]},
    ],
    "remember": [{"text": "The quay is wet.", "session_id": "session"}],
    "forget": [{"ids": ["id"]}, {"session": "session"}],
    "unforget": [{"ids": ["id"]}],
    "facts": [{}, {"include_superseded": True}, {"query": QUERY}, {"subject": "Ben"}],
    "fact": [{"fact_id": "id"}],
    "review": [{}, {"accept": ["id"]}, {"reject": ["id"]}, {"edit": {"id": "No."}}],
    "status": [{}],
    "ping": [{}],
    "acknowledge": [{"recall_id": "recall", "context": "context"}],
    "offers": "not over TCP: of the home's own jobs",
    "complete": "not over TCP: of the home's own jobs",
}


def _filled(value: Any, names: Names, identity: str) -> Any:
    """Return parameters with the names in the places of what they stand for."""
    stands = {
        "session": names.session,
        "run": names.run,
        "recall": names.recall,
        "id": identity,
        "context": {"session_id": names.session, "run_id": names.run},
    }

    def filled(part: Any) -> Any:
        return _filled(part, names, identity)

    if isinstance(value, dict):
        return {
            identity if part == "No." else key: part if key == "name" else filled(part)
            for key, part in value.items()
        }
    if isinstance(value, list):
        return [*map(filled, value)]
    if isinstance(value, str) and value.startswith("review "):
        return value.replace(" id", f" {identity[-8:]}")
    return stands.get(value, value) if isinstance(value, str) else value


def public(kind: type) -> set[str]:
    """Return the names of a class that anybody may use."""
    return {name for name in dir(kind) if not name.startswith("_")}


def test_every_method_is_in_a_table() -> None:
    """A method of a door that is not in its table here fails, and so does one that is gone."""
    assert public(MemTier) == API.keys()
    assert public(FactService) == SERVICE.keys()
    assert set(METHODS) == RPC.keys()
    assert {name for name, calls in RPC.items() if not isinstance(calls, str)} == TCP_METHODS
    assert public(AsyncMemTier) <= API.keys()
    assert {*COMMANDS} == {call["text"].split()[0] for call in RPC["command"]}
    assert {*TOOLS, *CLIENT_TOOLS} == {call["name"] for call in RPC["tool"]}


@pytest.mark.parametrize("name", [n for n, made in API.items() if not isinstance(made, str)])
def test_the_api(world: World, name: str) -> None:
    """A method that is asked for Ann neither shows nor changes what is Ben's."""
    made = API[name]
    assert not isinstance(made, str)
    with MemTier.open(world.home, "shop", AGENT) as memory:
        calls: Any = made(memory, world)
        check(world, calls)


@pytest.mark.parametrize("name", [n for n, calls in RPC.items() if not isinstance(calls, str)])
def test_a_token_of_one_person(world: World, name: str) -> None:
    """A request under a token that is bound to Ann neither shows nor changes what is Ben's."""
    grant = Grant("t", "shop", ("shop",), agent=AGENT, sender="ann")
    access = Access(grant, world.home, lambda _: True)
    methods = Methods(world.home, lambda _context: None).restricted(access)

    def ask(params: Any) -> Any:
        function = getattr(methods, name)
        return function(**check_arguments(function, access.narrow(name, params)))

    requests = {
        json.dumps(_filled(params, names, identity))
        for params in RPC[name]
        for names in (world.ben, world.ann)
        for identity in world.ids
    }
    check(world, [(lambda r=request: ask(json.loads(r))) for request in sorted(requests)])


def test_a_person_keeps_what_is_theirs(world: World) -> None:
    """What is refused to Ann, Ben may do: see his lines, hide them and bring them back."""
    with MemTier.open(world.home, "shop", AGENT) as memory:
        knowledge = memory.knowledge.of_sender("ben")
        lines = [line.entry for f in world.ben.facts for line in knowledge.fact(f).lines]
        assert lines
        assert all(lines)
        hidden = memory.forget(session="sben", sender="ben")
        assert set(hidden.ids) < set(world.ben.entries)
        assert set(hidden.facts) <= set(world.ben.facts)
        assert "walrus" not in memory.recall("walrus locker", sender="ben").text
        assert knowledge.unforget(hidden.ids).ids == hidden.ids
        with suppress(MemTierError):
            memory.knowledge.of_sender("ann").accept(world.ben.facts)
        assert asyncio.run(_facts_of(world, "ann")) == {*world.ann.facts} | _shared(memory, world)


async def _facts_of(world: World, sender: str) -> set[str]:
    async with await AsyncMemTier.open(world.home, "shop", AGENT) as memory:
        return {fact.id for fact in await memory.facts(sender=sender)}


def _shared(memory: MemTier, world: World) -> set[str]:
    return {f.id for f in memory.facts(sender="cleo") if f.id in world.ben.facts}


def test_tools_and_commands_know_the_sender(world: World) -> None:
    """A host's model and chat are bound to the sender of the context, not of the text."""
    context = RunContext(
        agent_id=AGENT, project="shop", home=str(world.home), session_id="sben", sender="ann"
    )
    for identity in world.ben.entries:
        assert not call_tool("memtier_get", {"id": identity}, context)["ok"]
    assert "Quint" not in answer_command("review", context)
