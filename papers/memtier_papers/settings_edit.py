"""Set one section or setting of a settings file, leaving every other byte unchanged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from memtier_plugin.core.errors import SettingsError
from memtier_plugin.core.settings.load import project_values
from memtier_plugin.core.settings.yaml_file import YamlFile, read_config_text

if TYPE_CHECKING:
    from yaml import Node

INDENT = 2
_WIDTH = 10_000  # of a line, so that paths are never folded

SectionValues = Mapping[str, float] | str  # of a section, or of a single setting


@dataclass(frozen=True, slots=True)
class Edit:
    """A change of a file's text: what is removed, and what is inserted instead."""

    before: str
    start: int
    removed: str
    inserted: str

    @property
    def after(self) -> str:
        """The text of the file with the change made."""
        return (
            self.before[: self.start]
            + self.inserted
            + self.before[self.start + len(self.removed) :]
        )


def edit_section(path: Path, section: tuple[str, str], values: SectionValues) -> Edit:
    """Return the edit that replaces a section's values in a project's file.

    Args:
        section: such as ("retrieval", "weights"), or a single setting: ("ask", "planner").

    Raises:
        SettingsError: the file is already invalid, or too unusual to be edited safely.
    """
    text = read_config_text(path) or ""
    file = YamlFile.parse(str(path), text)
    wanted = {key: value for key, value in project_values(file).items() if key[:2] != section}
    if isinstance(values, str):
        wanted[section] = values
    else:
        wanted |= {(*section, name): value for name, value in values.items()}
    edit = _edit(file, text, section, values)
    try:
        is_safe = project_values(YamlFile.parse(str(path), edit.after)) == wanted
    except SettingsError:
        is_safe = False
    if not is_safe:
        lines = _lines(section[1], values, INDENT)
        raise SettingsError(
            f"{path} cannot be edited safely; set by hand, in {section[0]}:\n{lines}"
        )
    return edit


def undo_edit(path: Path, removed: str, inserted: str) -> Edit:
    """Return the edit that reverses an earlier one, keeping later changes elsewhere.

    Raises:
        SettingsError: the inserted text is no longer there unchanged.
    """
    text = read_config_text(path) or ""
    if not inserted or text.count(inserted) != 1:
        raise SettingsError(f"{path} was changed by hand since; edit it by hand to undo this")
    edit = Edit(text, text.index(inserted), inserted, removed)
    project_values(YamlFile.parse(str(path), edit.after))
    return edit


def _edit(file: YamlFile, text: str, section: tuple[str, str], values: SectionValues) -> Edit:
    top, name = section
    for key, child, _ in file.pairs(file.root):
        if key == top:
            return _edit_inside(text, child, name, values)
    gap = "" if not text or text.endswith("\n") else "\n"
    return Edit(text, len(text), "", f"{gap}{top}:\n{_lines(name, values, INDENT)}")


def _edit_inside(text: str, parent: Node, name: str, values: SectionValues) -> Edit:
    """Return the edit of a section within its parent's mapping."""
    import yaml

    pairs = parent.value if isinstance(parent, yaml.MappingNode) else []
    if not pairs:  # `retrieval:` with nothing under it
        lines = _lines(name, values, INDENT)
        return Edit(text, parent.start_mark.index, "", f"\n{lines}".rstrip("\n"))
    first: Node = pairs[0][0]
    column = first.start_mark.column
    lines = _lines(name, values, column)[column:]
    for key, child in pairs:
        if key.value == name:
            start = key.start_mark.index
            last = child
            if isinstance(child, yaml.MappingNode) and child.value and not child.flow_style:
                last = child.value[-1][1]  # a block ends where the next key begins, with comments
            removed = text[start : last.end_mark.index]
            return Edit(text, start, removed, lines.rstrip("\n"))
    return Edit(text, first.start_mark.index, "", f"{lines}{'':{column}}")


def _lines(name: str, values: SectionValues, indent: int) -> str:
    import yaml

    document = {name: values if isinstance(values, str) else dict(values)}
    written = yaml.safe_dump(document, sort_keys=False, width=_WIDTH)
    return "".join(f"{'':{indent}}{line}\n" for line in written.splitlines())
