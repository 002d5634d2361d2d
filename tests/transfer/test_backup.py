"""A project goes into one archive and comes back the same, and nothing else comes out of one."""

from __future__ import annotations

import io
import json
import os
import signal
import tarfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtier_plugin.core.errors import BackupError
from memtier_plugin.core.paths import HOME_MARKER, make_project_folder
from memtier_plugin.memory import MemTier
from memtier_plugin.storage import home_files
from memtier_plugin.storage.ledger import jsonl
from memtier_plugin.transfer import archive as archives
from memtier_plugin.transfer.archive import restore_backup, verify_backup, write_backup
from tests.faults import injection
from tests.processes import child_environment, fork_python, run_memtier
from tests.proofs.checks import ask, content, unequal

NOW = datetime(2026, 3, 14, 9, tzinfo=UTC)


def quiet(done: int, total: int) -> None:
    """Stand for a progress bar."""


def filled(home: Path, project: str = "harbor") -> MemTier:
    """Return a memory with entries, a fact, a credit, a tombstone and settings."""
    folder = make_project_folder(home, project)
    (folder / "project.yaml").write_text("retrieval: {k: 5}\n")
    memory = MemTier.open(home, project, "openclaw.Main/1")
    for number in range(6):
        memory.record(
            [
                {"role": "user", "content": f"The tide gauge {number} hangs at pier {number}."},
                {"role": "assistant", "content": "Noted."},
            ],
            session_id="s",
            run_id=f"r{number}",
        )
    memory.remember("The harbour master is called Ines.")
    memory.recall("tide gauge", purpose="inject", session_id="s", run_id="r9")
    memory.end_run(
        [
            {"role": "user", "content": "and now?"},
            {"role": "tool", "name": "sh", "content": "tide gauge 3 hangs at pier 3", "ok": True},
        ],
        session_id="s",
        run_id="r9",
    )
    [forgotten] = [e.id for e in memory.entries() if e.content.startswith("The tide gauge 2")]
    memory.forget(ids=[forgotten])
    memory.catch_up()
    return memory


def test_a_restored_project_is_the_same(tmp_path: Path, home: Path) -> None:
    """Ledgers, settings, ids, weights and recalls are equal; the archive is private and noted."""
    queries = ["tide gauge at the pier", "harbour master", "gauge 2"]
    with filled(home) as memory:
        archive = write_backup(memory.folder, memory.project, tmp_path, NOW, quiet)
        assert archive.name == "memtier-harbor-20260314T090000Z.tar.gz"
        assert archive.stat().st_mode & 0o777 == 0o600
        name, folder = restore_backup(archive, tmp_path / "other")
        assert (name, folder) == ("harbor", tmp_path / "other/projects/harbor")
        for path in folder.rglob("*"):
            assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600)
        with MemTier.open(tmp_path / "other", "harbor", "openclaw.Main/1") as back:
            assert back.settings.retrieval.k == 5
            back.catch_up()
            mine, its = content(memory), content(back)
            assert mine == its
            assert not unequal(ask(memory, queries, NOW), ask(back, queries, NOW))
            assert [e.to_json() for e in memory.entries()] == [e.to_json() for e in back.entries()]


@given(
    runs=st.lists(
        st.tuples(
            st.text(min_size=1, max_size=8),
            st.lists(st.text(max_size=60).map("{}.".format), min_size=1, max_size=3),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_whatever_was_said_comes_back(
    tmp_path_factory: pytest.TempPathFactory, runs: list[tuple[str, list[str]]]
) -> None:
    """For any agents and texts the ledgers of a restored project are the same bytes."""
    root = tmp_path_factory.mktemp("any")
    for number, (agent, texts) in enumerate(runs):
        with MemTier.open(root / "home", "p", agent) as memory:
            messages = [{"role": "user", "content": text} for text in texts]
            memory.record(messages, session_id=f"s{agent}", run_id=str(number))
            folder = memory.folder
    archive = write_backup(folder, "p", root / "a.tar.gz", NOW, quiet)
    _, back = restore_backup(archive, root / "home", "q")

    def files(top: Path) -> dict[str, bytes]:
        paths = [path for path in top.rglob("*.jsonl") if path.name != home_files.REGISTER_FILE]
        return {str(path.relative_to(top)): path.read_bytes() for path in paths}

    assert files(folder) == files(back) != {}


def test_the_command_refuses_to_overwrite(tmp_path: Path, home: Path) -> None:
    """Neither an archive nor a project is overwritten; another name or home is the way."""
    filled(home).close()

    def run(*args: str, code: int = 0) -> Any:
        result = run_memtier(*args, "--json", code=code)
        return json.loads(result.stdout)

    archive = str(tmp_path / "a.tar.gz")
    report = run("backup", archive, "--project", "harbor")
    assert report["project"] == "harbor" and report["bytes"] == Path(archive).stat().st_size
    assert "exists" in run("backup", archive, "--project", "harbor", code=1)["error"]
    assert "already exists" in run("restore", archive, code=1)["error"]
    assert run("restore", archive, "--dry-run")["verified"]
    back = run("restore", archive, "--project", "copy")
    assert back["project"] == "copy" and back["facts"] == 1
    assert run("restore", archive, "--home", str(tmp_path / "new"))["project"] == "harbor"
    assert [export.kind for export in home_files.list_exports(home / "projects/harbor")] == [
        *("part", "backup")
    ]
    inside = home / "projects/harbor/a.tar.gz"
    assert "inside" in run("backup", str(inside), "--project", "harbor", code=1)["error"]
    assert "cannot write" in run("backup", "no/such/a.gz", "--project", "harbor", code=1)["error"]
    assert [p.name for p in home.iterdir() if p.name[0] != "."] == ["projects"]


def test_a_torn_line_and_what_is_derived_stay_out(tmp_path: Path, home: Path) -> None:
    """Of each ledger the complete lines are taken; indexes, locks and marks of hooks are not."""
    with filled(home) as memory:
        memory.note_hook("openclaw.Main/1", "agent_end", True)
        (memory.folder / "notes.txt").symlink_to("/etc/passwd")
        path = next((memory.folder / "episodic").rglob("*.jsonl"))
        content = path.read_bytes()
        path.write_bytes(content + b'{"torn')
        archive = write_backup(memory.folder, "harbor", tmp_path / "a.tgz", NOW, quiet)
    names = {file["path"] for file in verify_backup(archive)["files"]}
    assert {name.partition("/")[0] for name in names} == {
        home_files.REGISTER_FILE,
        "episodic",
        "semantic",
        "journal",
        "project.yaml",
    }
    _, folder = restore_backup(archive, tmp_path / "other")
    assert (folder / path.relative_to(memory.folder)).read_bytes() == content


def test_a_file_that_is_written_anew_meanwhile(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backup during which a ledger is replaced begins again, and what it then has is whole."""
    with filled(home) as memory:
        path = next((memory.folder / "semantic").glob("*.jsonl"))
        freeze, calls = archives.freeze_parts, []

        def replaced(folder: Path) -> Any:
            parts = freeze(folder)
            calls.append(1)
            if len(calls) == 1:
                path.rename(tmp_path / "old")
                path.write_bytes(b"")
            return parts

        monkeypatch.setattr(archives, "freeze_parts", replaced)
        archive = write_backup(memory.folder, "harbor", tmp_path / "a.tgz", NOW, quiet)
        assert len(calls) == 2
        assert verify_backup(archive)
        assert sorted(p.name for p in tmp_path.iterdir()) == ["a.tgz", "home", "old"]


def rewritten(archive: Path, change: Callable[[dict[str, tarfile.TarInfo]], Any]) -> Path:
    """Write an archive anew after a change of its members; more members may be returned."""
    path = archive.with_name("changed.tar.gz")
    with tarfile.open(archive) as old, tarfile.open(path, "w:gz") as new:
        members = {m.name: (m, old.extractfile(m).read()) for m in old}  # type: ignore[union-attr]
        more = change({name: member for name, (member, _) in members.items()}) or []
        for member, data in [*more, *members.values()]:
            if member.name != "drop":
                body = io.BytesIO(data) if member.isreg() else None
                member.size = len(data) if member.isreg() else 0
                new.addfile(member, body)
    return path


def member(name: str, kind: bytes = tarfile.REGTYPE) -> tuple[tarfile.TarInfo, bytes]:
    """Return one more member."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, "/etc/passwd"
    return info, b"x\n"


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (member("project/../../../evil"), "rejected"),
        (member("/etc/evil"), "rejected"),
        (member("evil"), "rejected"),
        (member("project/episodic/../x.jsonl"), "rejected"),
        (member("project/episodic/a/b/x.jsonl"), "rejected"),
        (member("project/episodic/a/x.sh"), "rejected"),
        (member("project/.daemon.lock"), "rejected"),
        (member("project/index.sqlite3"), "rejected"),
        (member("project/x\\..\\y"), "rejected"),
        (member("project/link", tarfile.SYMTYPE), "links are rejected"),
        (member("project/link", tarfile.LNKTYPE), "links are rejected"),
        (member("project/pipe", tarfile.FIFOTYPE), "not a plain file"),
        (member("project/folder", tarfile.DIRTYPE), "not a plain file"),
        (member("project/extra.txt"), "not in the manifest"),
    ],
)
def test_an_unsafe_archive_is_refused(
    tmp_path: Path, home: Path, more: tuple[tarfile.TarInfo, bytes], says: str
) -> None:
    """What would leave the project, is a link, or was not backed up, is refused with its name."""
    with filled(home) as memory:
        archive = write_backup(memory.folder, "harbor", tmp_path / "a.tgz", NOW, quiet)
    bad = rewritten(archive, lambda members: [more])
    with pytest.raises(BackupError, match=says):
        restore_backup(bad, tmp_path / "deep" / "other")
    assert not list((tmp_path / "deep").rglob("*evil*"))
    left = [p.name for p in (tmp_path / "deep" / "other").rglob("*")]
    assert sorted(left) == [HOME_MARKER, "projects"]


def test_a_damaged_archive_is_refused(tmp_path: Path, home: Path) -> None:
    """Whatever byte is lost or changed, nothing is restored."""
    with filled(home) as memory:
        archive = write_backup(memory.folder, "harbor", tmp_path / "a.tgz", NOW, quiet)
    data = archive.read_bytes()
    bad = tmp_path / "bad.tgz"
    for spot in range(20, len(data) - 8, max(1, len(data) // 40)):
        bad.write_bytes(data[:spot] + bytes([data[spot] ^ 0x41]) + data[spot + 1 :])
        with pytest.raises(BackupError):
            restore_backup(bad, tmp_path / "other")
        bad.write_bytes(data[:spot])
        with pytest.raises(BackupError):
            restore_backup(bad, tmp_path / "other")

    def renamed(members: dict[str, tarfile.TarInfo]) -> None:
        members["project/project.yaml"].name = "drop"

    with pytest.raises(BackupError, match=r"'project\.yaml' is missing"):
        verify_backup(rewritten(archive, renamed))
    with pytest.raises(BackupError, match="there is no file"):
        verify_backup(tmp_path / "none")
    bad.write_text("no archive")
    with pytest.raises(BackupError, match="not a backup"):
        verify_backup(bad)


def test_a_changed_line_is_found(tmp_path: Path, home: Path) -> None:
    """An archive whose content is not that of its manifest is refused, although it unpacks."""
    with filled(home) as memory:
        archive = write_backup(memory.folder, "harbor", tmp_path / "a.tgz", NOW, quiet)
    with tarfile.open(archive) as old, tarfile.open(tmp_path / "b.tgz", "w:gz") as new:
        for member in old:
            data = old.extractfile(member).read().replace(b"Ines", b"Enis")  # type: ignore[union-attr]
            new.addfile(member, io.BytesIO(data))
    with pytest.raises(BackupError, match="SHA-256"):
        restore_backup(tmp_path / "b.tgz", tmp_path / "other")


def test_what_was_written_ahead_is_completed(tmp_path: Path, home: Path) -> None:
    """A consolidation that was killed before the backup is completed in the restored project."""
    with filled(home) as memory:
        [fact] = memory.facts()
        plan = {"facts": [{**fact.to_json(), "id": "0" * 26, "text": "Late."}], "events": []}
        (memory.folder / ".settling.json").write_bytes(jsonl.to_line(plan))
        archive = write_backup(memory.folder, "harbor", tmp_path / "a.tgz", NOW, quiet)
    restore_backup(archive, tmp_path / "other")
    with MemTier.open(tmp_path / "other", "harbor", "openclaw.Main/1") as back:
        back.consolidate()
        assert "Late." in [fact.text for fact in back.facts()]
        assert not (back.folder / ".settling.json").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_home_that_cannot_be_written_is_backed_up(tmp_path: Path, home: Path) -> None:
    """Backing up needs no right to write where the project is."""
    with filled(home) as memory:
        folder = memory.folder
    folder.chmod(0o500)
    try:
        assert verify_backup(write_backup(folder, "harbor", tmp_path / "a.tgz", NOW, quiet))
    finally:
        folder.chmod(0o700)


KILLED_BACKUP = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from memtier_plugin.transfer.archive import write_backup

folder, dest = map(Path, sys.argv[1:])
write_backup(folder, "harbor", dest, datetime.now(UTC), lambda done, total: None)
"""


@pytest.mark.parametrize(
    "point",
    ["before fsync backup", "before link backup", "after register backup", "after link backup"],
)
def test_no_archive_of_a_killed_backup_is_unknown(tmp_path: Path, point: str) -> None:
    """Killed before or behind the moment an archive is visible: a purge names it, or clears it."""
    home, outside = tmp_path / "home", tmp_path / "archives"
    outside.mkdir()
    memory = filled(home)
    environment = child_environment(**{injection.VARIABLE: point})
    arguments = ("-c", KILLED_BACKUP, memory.folder, outside / "all.tar.gz")
    assert fork_python(*arguments, env=environment).wait() == -signal.SIGKILL
    written = [path.name for path in outside.iterdir()]
    assert written, "the backup was killed before it wrote anything"
    receipt = memory.purge("The tide gauge 3 hangs")
    left = {path.name for path in outside.iterdir()}
    named = {Path(e["path"]).name for e in receipt.copies.exports if e["what"] == "left"}
    assert left == named == ({"all.tar.gz"} if point == "after link backup" else set())
    assert receipt.gone is not bool(left)
    memory.close()


def test_the_next_backup_clears_what_a_killed_one_left(tmp_path: Path) -> None:
    """Parts of dead processes go, those of a MemTier that did not register them too."""
    memory = filled(tmp_path / "home")
    outside = tmp_path / "archives"
    outside.mkdir()
    dead = fork_python("-c", "")
    dead.wait()
    stale = outside / f".old.tar.gz.{dead.pid}.part"
    running = outside / f".now.tar.gz.{os.getpid()}.part"
    for part in (stale, running):
        part.write_bytes(b"half")
    write_backup(memory.folder, "harbor", outside / "new.tar.gz", NOW, quiet)
    assert {path.name for path in outside.iterdir()} == {"new.tar.gz", running.name}
    memory.close()
