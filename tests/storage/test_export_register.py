"""The register of what was written outside of the home."""

from __future__ import annotations

from pathlib import Path

from memtier_plugin.memory import MemTier
from memtier_plugin.storage import home_files


def test_an_export_is_known_again(home: Path, tmp_path: Path) -> None:
    """Each path stands once, with whether its file is still there and still what was written."""
    with MemTier.open(home, "harbor") as memory:
        out = tmp_path / "out.jsonl"
        out.write_text("one\n")
        home_files.register_export(memory.folder, out, "jsonl", content=out)
        out.write_text("two\n")
        home_files.register_export(memory.folder, out, "jsonl", content=out)
        [export] = home_files.list_exports(memory.folder)
        assert (export.path, export.kind, export.exists, export.unchanged) == (
            out,
            "jsonl",
            True,
            True,
        )
        out.write_text("three\n")
        assert not home_files.list_exports(memory.folder)[0].unchanged
        out.unlink()
        assert not home_files.list_exports(memory.folder)[0].exists


def test_the_register_holds_no_content(home: Path, tmp_path: Path) -> None:
    """What was exported does not stand in the register; a torn line in it does no harm."""
    with MemTier.open(home, "harbor") as memory:
        out = tmp_path / "out.md"
        out.write_text("a very secret word\n")
        home_files.register_export(memory.folder, out, "markdown", content=out)
        register = memory.folder / home_files.REGISTER_FILE
        assert b"secret" not in register.read_bytes()
        with register.open("ab") as file:
            file.write(b'{"at": "2026')
        home_files.register_export(memory.folder, out, "markdown", content=out)
        assert len(home_files.list_exports(memory.folder)) == 1
        assert home_files.file_digest(tmp_path / "nothing") == ""
