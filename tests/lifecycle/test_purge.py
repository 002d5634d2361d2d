"""Purging: found everywhere, gone everywhere, and it stays gone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from memtier_plugin.cli.main import main
from memtier_plugin.core.errors import MessageError, NotFound
from memtier_plugin.core.formats import new_id
from memtier_plugin.core.records import Entry, Fact, FactDraft, JournalEvent, Source
from memtier_plugin.lifecycle.purge import files as rewrite
from memtier_plugin.lifecycle.purge.plan import PurgePlan, iter_texts
from memtier_plugin.lifecycle.selection import Selection
from memtier_plugin.memory import MemTier
from memtier_plugin.storage import home_files
from tests.builders import costly_examples, make_fact, user_message, write_config

SECRET = "-".join(("heron", "4471", "Quail"))  # made here, so that no filter takes it for one


def files(home: Path) -> Iterator[Path]:
    """Yield every file below a folder."""
    return (path for path in sorted(home.rglob("*")) if path.is_file())


def holding(home: Path, text: str) -> list[str]:
    """Return the files that hold a text, byte for byte, in any case (what `strings` would show)."""
    needle = text.encode().lower()
    return [path.name for path in files(home) if needle in path.read_bytes().lower()]


def messages_of(text: str) -> list[dict[str, Any]]:
    """Return a run in which a user says this."""
    return [{"role": "user", "content": text}, {"role": "assistant", "content": "Noted."}]


def planted(home: Path, text: str = SECRET) -> tuple[MemTier, MemTier]:
    """Plant a text with two agents, in facts, an experience, a summary and the journal."""
    memory, two = MemTier.open(home, "harbor", "one"), MemTier.open(home, "harbor", "two")
    [entry, _] = memory.record(
        messages_of(f"The gate opens with {text} at night."), session_id="s", run_id="r"
    )
    [other_entry, _] = two.record(
        messages_of(f"Somebody wrote {text} on the wall."), session_id="t", run_id="q"
    )
    memory.remember(f"The depot code is {text}.")
    source = Source(agent="one", session="s", entry=entry.id)
    other = Source(agent="two", session="t", entry=other_entry.id)
    draft = {"subject": "gate", "relation": "opens", "value": text, "quote": text}
    memory.add_facts(
        [
            FactDraft(text=f"The gate opens with {text}.", sources=(source, other), **draft),
            FactDraft(text=f"Type {text} to open.", sources=(source,), tier="procedural", **draft),
            FactDraft(
                subject="day",
                relation="told",
                value="",
                text=f"Said: {text}.",
                sources=(source,),
                extractor="summary",
                private_to=("one", ""),
            ),
        ]
    )
    memory.recall(f"what is {text}?", purpose="inject", run_id="r2")
    two.recall(text)
    return memory, two


@pytest.mark.parametrize("by_query", [False, True])
def test_nothing_is_left(home: Path, by_query: bool) -> None:
    """A text, or the items that say it, is in no file after a purge, nor after its re-delivery."""
    memory, two = planted(home)
    assert holding(home, SECRET)
    target: Selection | str = Selection(query=SECRET) if by_query else SECRET
    plan = memory.purge(target, dry_run=True)
    assert not plan.done and holding(home, SECRET)
    copies = plan.copies
    assert (copies.entries, copies.summaries, copies.experiences) == (3, 1, 1)
    assert copies.journal == 2 and copies.facts == 2 and copies.agents == ["one", "two"]
    assert copies.vectors and copies.ngrams and copies.quotes and copies.pages
    receipt = memory.purge(target)
    assert receipt.gone and receipt.found_after["bytes"] == 0, receipt
    assert holding(home, SECRET) == []
    again = memory.record(
        messages_of(f"The gate opens with {SECRET} at night."), session_id="s", run_id="r"
    )
    assert again == []
    memory.reindex()
    assert holding(home, SECRET) == []
    assert not any(SECRET in hit.text for hit in two.recall("gate night wall").hits)
    [event] = memory.events(kinds=["purge"])
    assert event.data["receipt"]["gone"] and SECRET not in json.dumps(dict(event.data))


def test_the_rest_of_a_line_stays(home: Path) -> None:
    """Purging a text keeps what was said around it, and what has nothing to do with it."""
    memory, two = planted(home)
    memory.record(messages_of("The tide turns at nine."), session_id="s", run_id="r9")
    before = {path: path.stat().st_size for path in files(home / "projects/harbor/episodic")}
    memory.purge(SECRET)
    texts = [entry.content for entry in memory.entries()]
    assert "The gate opens with [purged] at night." in texts and "The tide turns at nine." in texts
    hits = memory.recall("gate opens at night").hits
    assert any("[purged]" in hit.text for hit in hits)
    assert {path: path.stat().st_size for path in before} == before  # cursors count bytes
    assert memory.status()["degraded"] == []
    assert two.store.files_behind() == []


def test_a_day_that_is_purged_stays_in_what_code_wrote(
    home: Path, day: Callable[..., datetime]
) -> None:
    """Purging a text that also occurs in a timestamp removes it, and every line stays readable."""
    with MemTier.open(home, "p") as memory:
        memory.record(
            [user_message("Since 2026-01-05 the cellar is locked.")],
            session_id="s",
            observed_at=day(0),
        )
        memory.consolidate()
        memory.remember("The vault opens on 2026-01-05.")
        memory.recall("Since when is the cellar locked?", at=day(0))
        memory.purge("2026-01-05")
        assert [finding for finding in memory.doctor() if ".jsonl" in finding.where] == []
        texts = [*memory.entries(), *memory.facts(include_superseded=True)]
        assert texts and not any("2026-01-05" in str(getattr(t, "text", "")) for t in texts)


def test_no_time_is_taken_for_text() -> None:
    """Every field of a record that holds a time is one that a purge leaves alone."""
    times = {
        field.encode_name
        for record in (Entry, Fact, Source, JournalEvent)
        for field in msgspec.structs.fields(record)
        if "datetime" in str(field.type)
    }
    assert times and not [name for name in times if [*iter_texts({name: "x"}, names=True)]]


def test_a_fact_on_other_grounds_stays(home: Path) -> None:
    """What also rests on something else stays, without the words of what was purged."""
    with MemTier.open(home, "harbor", "one") as memory:
        [first, _] = memory.record(
            messages_of("I live in Porto, by the way."), session_id="s", run_id="1"
        )
        [second, _] = memory.record(messages_of("I live in Porto."), session_id="t", run_id="2")
        sources = tuple(
            Source(agent="one", session=e.session_id, entry=e.id) for e in (first, second)
        )
        [fact] = memory.add_facts(
            [
                FactDraft(
                    subject="user",
                    relation="lives in",
                    value="Porto",
                    sources=sources,
                    text="The user lives in Porto.",
                    quote="Porto, by the way",
                    span=(10, 27),
                )
            ]
        )
        receipt = memory.purge(Selection(ids=(first.id,)))
        assert receipt.gone and receipt.copies.quotes == 1, receipt
        left, lines = memory.fact(fact.id)
        assert left.text == "The user lives in Porto." and left.quote == "[purged]"
        assert [line.id for line in lines] == [second.id]
        assert holding(home, "by the way") == []
        assert any(hit.id == fact.id for hit in memory.recall("where in Porto?").hits)


def test_the_query_that_was_the_message_goes_too(home: Path) -> None:
    """What a user said stands in the journal as the query of the recall before it: that goes."""
    with MemTier.open(home, "harbor", "one") as memory:
        memory.record(messages_of("Do you have any idea?"), session_id="x", run_id="r0")
        memory.recall("Do you have it?", purpose="inject", run_id="r1")
        [entry, _] = memory.record(messages_of("Do you have it?"), session_id="s", run_id="r1")
        memory.purge(Selection(ids=(entry.id,)))
        [event] = memory.events(kinds=["recall"])
        assert event.data["query"] == "[purged]"


def test_selections(home: Path) -> None:
    """Items are chosen by session, sender, run, agent, words and time, all of which must hold."""
    with MemTier.open(home, "harbor", "one") as memory:
        for number, sender in enumerate(("ann", "ben")):
            memory.record(
                messages_of(f"Word{number} apple"),
                session_id=f"s{number}",
                run_id=f"r{number}",
                sender=sender,
            )
        for selection, count in (
            (Selection(session="s0"), 2),
            (Selection(sender="ben"), 2),
            (Selection(run="r1"), 2),
            (Selection(agent="one"), 4),
            (Selection(query="apple"), 2),
            (Selection(query="apple", sender="ann"), 1),
            (Selection(query="apples word1"), 1),
        ):
            assert memory.purge(selection, dry_run=True).copies.entries == count, selection
        for nothing in (Selection(session="no"), Selection(query="plum"), Selection(ids=("x",))):
            with pytest.raises(NotFound):
                memory.purge(nothing, dry_run=True)
        with pytest.raises(MessageError, match="4 characters"):
            memory.purge("ap")


def test_exports(home: Path, tmp_path: Path) -> None:
    """An exported text file is rewritten; one that is no text, or was changed, is named."""
    memory, _ = planted(home)
    for name, kind in (("out.jsonl", "jsonl"), ("mine.md", "markdown"), ("all.tar", "backup")):
        path = tmp_path / name
        path.write_text(json.dumps({"text": f"say {SECRET}!"}) + "\n")
        home_files.register_export(memory.folder, path, kind, content=path)
    (tmp_path / "mine.md").write_text(f"I changed it: {SECRET}\n")
    home_files.register_export(memory.folder, tmp_path / "gone.md", "markdown")
    receipt = memory.purge(SECRET)
    what = {Path(e["path"]).name: e["what"] for e in receipt.copies.exports}
    assert what["out.jsonl"] == "rewritten" and what["mine.md"] == what["all.tar"] == "left"
    assert "moved" in what["gone.md"]
    assert SECRET not in (tmp_path / "out.jsonl").read_text()
    assert home_files.list_exports(memory.folder)[0].path.name != "out.jsonl"  # noted anew
    assert not receipt.gone and any("mine.md" in line for line in receipt.beyond)
    memory.purge(SECRET, delete_exports=True)
    assert not (tmp_path / "all.tar").exists() and (tmp_path / "mine.md").exists()


def test_other_files_of_the_home(home: Path) -> None:
    """Logs, what hooks noted, the queue and set-aside indexes are cleaned; settings are named."""
    memory, _ = planted(home)
    (home / "logs").mkdir()
    (home / "logs" / "daemon.log").write_text(f"failed at {SECRET}\nall well\n")
    (home / "queue").mkdir()
    (home / "queue" / "1.json").write_text(json.dumps({"event": f"{SECRET}"}))
    memory.note_hook("one", "agent_end", False, f"cannot parse {SECRET}")
    aside = memory.folder / "index.sqlite3.broken-1"
    aside.write_text(SECRET)
    torn = memory.folder / "journal" / "one" / "2026-01-01.jsonl"
    torn.write_text(f'{{"id": "x", "query": "{SECRET}\n{{}}\n{SECRET}')
    cut = (
        memory.folder / "episodic" / "one" / ".2026-01-01.jsonl.torn-1"
    )  # as `doctor --fix` leaves it
    cut.write_text(f'{{"id": "y", "content": "{SECRET}')
    write_config(home, f"redaction:\n  allow: [{SECRET}]\n")
    receipt = memory.purge(SECRET)
    assert holding(home, SECRET) == ["config.yaml"]
    assert not receipt.gone and "config.yaml" in " ".join(receipt.beyond)
    assert (home / "logs" / "daemon.log").read_text() == "failed at [purged]\nall well\n"
    assert receipt.copies.queue == 1 and receipt.copies.unreadable == 2 and not aside.exists()


def test_a_purge_that_was_cut_off_is_completed(home: Path) -> None:
    """What is written ahead is done by whoever comes next, without knowing the words."""
    memory, two = planted(home)
    scan = memory.purger._scan(SECRET, False)
    rewrite.save_plan(memory.store, scan.plan)
    assert any("purge" in problem for problem in memory.status()["degraded"])
    assert SECRET not in memory.store.project_folder.purge_plan.read_text()
    assert two.purger.complete() and not two.purger.complete()
    assert holding(home, SECRET) == []
    assert not memory.store.project_folder.purge_plan.exists()


def test_settling_that_was_cut_off_comes_first(home: Path) -> None:
    """Facts that were written ahead only are written, and then purged, not brought back later."""
    memory, _ = planted(home)
    [entry] = [e for e in memory.entries(agent="one") if SECRET in e.content][:1]
    given = {"project": "harbor", "value": SECRET, "sources": (entry.source,)}
    fact = make_fact(f"Late {SECRET}.", entry.timestamp, id=new_id(), **given)
    (memory.folder / ".settling.json").write_text(
        json.dumps({"facts": [fact.to_json()], "events": []})
    )
    assert memory.purge(SECRET).gone and holding(home, SECRET) == []


def test_the_command(home: Path) -> None:
    """It asks or is told, lists every copy first, and ends with 1 while something is left."""
    planted(home)
    run = CliRunner().invoke
    base = ["--home", str(home), "--project", "harbor"]
    refused = run(main, [*base, "purge", "--text-stdin"], input=f"{SECRET}\n")
    assert refused.exit_code == 2 and "--yes" in refused.output and holding(home, SECRET)
    assert run(main, [*base, "purge"]).exit_code == 2
    listed = run(main, [*base, "--json", "purge", "--text", SECRET, "--dry-run"])
    assert json.loads(listed.stdout)["copies"]["entries"] == 3
    shown = run(main, [*base, "purge", "--text", SECRET, "--dry-run"])
    assert "Would be purged" in shown.output and "host itself" in shown.output
    done = run(main, [*base, "purge", "--text-stdin", "--yes"], input=f"{SECRET}\n")
    assert done.exit_code == 0 and "Found afterwards" in done.output and holding(home, SECRET) == []
    assert run(main, [*base, "--json", "purge", "--resume"]).exit_code == 0
    assert run(main, [*base, "forget", "--all-of-agent"]).exit_code == 2
    hidden = run(main, [*base, "--json", "forget", "--query", "somebody wall", "--yes"])
    assert len(json.loads(hidden.stdout)["entries"]) == 1
    everything = run(main, [*base, "--json", "--agent", "one", "purge", "--all-of-agent", "--yes"])
    assert json.loads(everything.stdout)["gone"]


@settings(max_examples=costly_examples())
@given(
    st.text(
        st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Zs", "Zl", "Zp"]),
        min_size=10,
        max_size=30,
    ),
)
def test_any_text(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    """Whatever the text: in three tiers and the journal, after purge and reindex it is nowhere."""
    home = tmp_path_factory.mktemp("home")
    text = f"Q{text}7"
    memory, two = planted(home, text)
    memory.purge(text)
    memory.reindex()
    assert holding(home, text) == []
    assert not any(text in hit.text for hit in memory.recall(text).hits)
    memory.close()
    two.close()


def test_an_empty_plan_changes_nothing(home: Path) -> None:
    """Purging what is not there leaves every file as it is."""
    memory, _ = planted(home)
    before = {path: path.read_bytes() for path in files(home) if path.suffix == ".jsonl"}
    receipt = memory.purge("this stands nowhere at all")
    assert receipt.gone and receipt.copies.found == 0 and not PurgePlan("x")
    after = {path: path.read_bytes() for path in files(home) if path.suffix == ".jsonl"}
    assert [path for path, data in before.items() if not after[path].startswith(data)] == []


@pytest.mark.parametrize("wanted", ["Rita Kowalski", Selection(query="Kowalski")])
def test_no_name_is_made_of_what_is_remembered(home: Path, wanted: Selection | str) -> None:
    """What is remembered names its run by no word, so that a purge of it leaves none."""
    with MemTier.open(home, "harbor", "one") as memory:
        fact = memory.remember("My aunt Rita Kowalski waters the plants.")
        assert memory.remember("my aunt Rita Kowalski waters the plants") == fact
        [entry] = {memory.fact(fact.id)[1][0].run_id}
        assert memory.purge(wanted).gone
        assert holding(home, "kowalski") == holding(home, entry) == []


def test_nothing_purged_is_brought_back(home: Path) -> None:
    """`unforget` says that an item was purged, and brings back no stub beside what it does."""
    with MemTier.open(home, "harbor", "one") as memory:
        first, second = (
            memory.record(
                messages_of(f"Lina Brandt feeds cat {n}."), session_id="s", run_id=f"r{n}"
            )[0]
            for n in range(2)
        )
        memory.forget(ids=[first.id, second.id])
        memory.purge(Selection(ids=(first.id,)))
        for ids in ([first.id], [second.id, first.id]):
            with pytest.raises(NotFound, match=f"{first.id} was purged"):
                memory.unforget(ids)
        assert memory.unforget([second.id]).ids == (second.id,)


def test_a_name_that_an_earlier_version_made_goes_too(home: Path) -> None:
    """A run named after the words is purged with them."""
    with MemTier.open(home, "harbor", "one") as memory:
        run = "remember:my-aunt-rita-kowalski-waters-the-plants"
        memory.record(messages_of("Plants."), session_id="remembered", run_id=run)
        assert memory.purge("Rita Kowalski").gone and holding(home, "kowalski") == []
