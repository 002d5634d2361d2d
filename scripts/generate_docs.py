"""Write docs/cli.md, settings.md, surface.md and the modules of architecture.md from the code.

Usage::

    python scripts/generate_docs.py            # write the pages
    python scripts/generate_docs.py --check    # exit 1 where a page is out of date

What a setting means is the comment above it in config/memtier.yaml, or in
papers/memtier_papers/settings.yaml.
"""

from __future__ import annotations

import ast
import json
import math
import re
import runpy
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin

import click

from memtier_plugin.cli.main import main
from memtier_plugin.cli.scope import example_of
from memtier_plugin.core.settings.yaml_file import Key, KeyPath, all_keys

ROOT: Final = Path(__file__).resolve().parents[1]
DEFAULTS: Final = (
    ROOT / "config" / "memtier.yaml",
    ROOT / "papers" / "memtier_papers" / "settings.yaml",
)
# The keys below names that the user chooses, which the file of defaults cannot list.
NAMED: Final = {
    ("agents", "*", "read_all"): "Let this agent recall every agent's entries.",
    ("agents", "*", "read_people"): (
        "Let this agent recall every person's own facts, whoever it talks to."
    ),
    ("agents", "*", "promote"): (
        "What may become of this agent's own entries: facts (`all`), facts that wait for review "
        "(`propose`), or nothing shared (`none`)."
    ),
    ("endpoints", "*", "base_url"): "Address of the server, up to and including `/v1`.",
    ("endpoints", "*", "key_env"): "Environment variable that holds the key; `none` for no key.",
    ("endpoints", "*", "timeout_s"): "Seconds that one request may take.",
    ("endpoints", "*", "price_per_million_tokens"): "Price of a million input tokens; 0 is free.",
    ("endpoints", "*", "price_per_million_output_tokens"): (
        "Price of a million output tokens; 0 means the same as input."
    ),
    ("prices", "*", "input"): "Price of a million tokens that are read anew.",
    ("prices", "*", "cached"): "Price of a million tokens that the provider's prompt cache held.",
    ("prices", "*", "cache_write"): "Price of a million tokens that are written to that cache.",
    ("prices", "*", "output"): "Price of a million tokens that are answered.",
    ("workspaces", "*"): "Project of the folder that is the key; `memtier init` writes it.",
    ("project",): "Project to use, in a folder's `.memtier.yaml`.",
}  # fmt: skip
_KEY: Final = re.compile(r"^( *)([a-z_0-9]+):")
_COMMON: Final = ("home", "project", "agent", "json", "help")
_CLI_INTRO: Final = """\
# Commands

This page is generated from the commands by `scripts/generate_docs.py`; a test holds the two equal.

These options go with every command, before or after its name:

{common}

Data goes to stdout and everything else to stderr. The exit code is 0 on success, 1 when MemTier
refuses (the message says why, and what to do) and 2 when the command line is wrong. With `--json`
every command prints one JSON document; an error is one too, with the keys `error` and `kind`.

A shell completes commands, options, projects, agents, sessions and ids once its start-up file has
one of these lines:

```text
eval "$(_MEMTIER_COMPLETE=bash_source memtier)"            # ~/.bashrc
eval "$(_MEMTIER_COMPLETE=zsh_source memtier)"             # ~/.zshrc
_MEMTIER_COMPLETE=fish_source memtier | source             # ~/.config/fish/completions/memtier.fish
```
"""
_SETTINGS_INTRO: Final = """\
# Settings

This page is generated from the settings schema and the comments of `config/memtier.yaml` by
`scripts/generate_docs.py`; a test holds them equal.

A value is taken from the first of these that sets it:

1. the call (`MemTier.open(settings={"retrieval.k": 8})`),
2. the environment: `MEMTIER_` and the key in upper case, with `__` for each dot
   (`MEMTIER_RETRIEVAL__K=8`),
3. the folder's `.memtier.yaml`,
4. the project's `project.yaml`,
5. your `config.yaml` in the home,
6. the default.

A folder's `.memtier.yaml` came with somebody's repository, so it may set only `project` (one that
you bound to that folder with `memtier init`), `language`, `retrieval.k`, `retrieval.token_budget`
and `retrieval.weights`, within limits. `endpoints` and `workspaces` are read from `config.yaml`
alone, and `telemetry` from no project's file. An unknown key is an error that names the nearest
known key, the file and the line.

`memtier config show` lists every value with the file and line that set it, and `memtier config
check` reports mistakes. A project's file may look like this:

```yaml
retrieval:
  k: 12              # lines per prompt, at most
  token_budget: 500  # tokens of the whole block, at most
redaction:
  allow: ["EXAMPLE-KEY-0000"]  # not a secret, whatever it looks like
agents:
  planner: {read_all: true}    # may recall every agent's entries
```
"""


# -- commands ----------------------------------------------------------------------------------


def commands(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    """Yield every command that is not a group, with the words that call it."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


def cli_page() -> str:
    """Return docs/cli.md."""
    context = click.Context(main, info_name="memtier")
    common = [param for param in main.params if param.name in _COMMON]
    parts = [_CLI_INTRO.format(common=_options(common, context))]
    for words, command in commands(main, "memtier"):
        context = click.Context(command, info_name=words)
        text = "\n\n".join(filter(None, (command.help, command.epilog)))
        parts.append(f"## {words}\n\n{_prose(text)}\n")
        usage = " ".join([words, *command.collect_usage_pieces(context)])
        parts.append(f"```text\n{usage}\n```\n")
        example = example_of(command, words.partition(" ")[2])
        parts.append(f"For example: `{example}`\n")
        own = [
            p
            for p in command.params
            if isinstance(p, click.Option) and p.name not in _COMMON and not p.hidden
        ]
        if own:
            parts.append(_options(own, context) + "\n")
    return "\n".join(parts)


def _options(params: Iterable[click.Parameter], context: click.Context) -> str:
    # A list and not a table: a `|` in a cell is read differently by GitHub and by the site.
    records = [param.get_help_record(context) or ("", "") for param in params]
    return "\n".join(f"- `{flags}`: {_prose(text)}" for flags, text in records)


def _prose(text: str) -> str:
    """Return help text as Markdown: words in capitals stay as they are, lines are joined."""
    paragraphs = re.split(r"\n\s*\n", text.replace("\b", "").strip())
    joined = [" ".join(paragraph.split()) for paragraph in paragraphs]
    return "\n\n".join(_escaped(paragraph) for paragraph in joined)


# -- settings ----------------------------------------------------------------------------------


def meanings() -> dict[KeyPath, str]:
    """Return what each key means: the comment above it in a file of defaults."""
    meaning_by_key: dict[KeyPath, str] = dict(NAMED)
    comment: list[str] = []
    path: list[str] = []
    for line in "\n".join(path.read_text("utf-8") for path in DEFAULTS).splitlines():
        text = line.strip()
        if text.startswith("# ---") or not text:
            comment = []
        elif text.startswith("#"):
            comment.append(text[1:].strip())
        elif match := _KEY.match(line):
            depth = len(match[1]) // 2
            path = [*path[:depth], match[2]]
            if comment:
                meaning_by_key[tuple(path)] = " ".join(" ".join(comment).split())
            comment = []
    return meaning_by_key


def settings_page() -> str:
    """Return docs/settings.md."""
    about = meanings()
    sections: dict[str, list[tuple[KeyPath, Key]]] = {}
    for path, key in all_keys().items():
        sections.setdefault(path[0] if len(path) > 1 else "general", []).append((path, key))
    parts = [_SETTINGS_INTRO]
    for name, rows in sections.items():
        lines = [
            (f"`{'.'.join(path)}`", _takes(key), _default(key), _escaped(about[path]))
            for path, key in rows
        ]
        parts.append(f"## {name}\n")
        parts.append(_table(("key", "takes", "default", "meaning"), lines) + "\n")
    return "\n".join(parts)


def _takes(key: Key) -> str:
    kind, choices = get_origin(key.kind) or key.kind, get_args(key.kind)
    if kind is Literal:
        return ", ".join(f"`{choice}`" for choice in choices)
    if kind is tuple:
        return "a list of texts"
    if kind in (int, float):
        noun = "a whole number" if kind is int else "a number"
        low, high = key.limits
        return noun if math.isinf(high) else f"{noun}, {_plain(low)} to {_plain(high)}"
    if isinstance(key.limits, str):
        return "an address"
    return "true or false" if kind is bool else "text"


def _default(key: Key) -> str:
    if key.default is None:
        return ""
    if isinstance(key.default, tuple):
        return ", ".join(f"`{value}`" for value in key.default) or "none"
    return f"`{_plain(key.default)}`"


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# -- Markdown ----------------------------------------------------------------------------------


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


# -- modules -----------------------------------------------------------------------------------

_ARCHITECTURE: Final = ROOT / "docs" / "architecture.md"
_MODULES: Final = "## Every module\n"
_TREES: Final = ("memtier_plugin", "hooks", "daemon", "config", "papers", "bench")


def architecture_page() -> str:
    """Return docs/architecture.md with the list of modules that ends it made anew."""
    text = _ARCHITECTURE.read_text("utf-8").partition(_MODULES)[0]
    folders: dict[str, list[str]] = {}
    for tree in _TREES:
        for path in sorted((ROOT / tree).rglob("*.py")):
            folder = path.parent.relative_to(ROOT).as_posix()
            if "tests" in path.parts or path.name == "__init__.py":
                continue
            summary = (ast.get_docstring(ast.parse(path.read_bytes())) or "").partition("\n\n")[0]
            name = path.relative_to(ROOT).as_posix().removeprefix("memtier_plugin/")
            line = f"- `{name}`: {_escaped(' '.join(summary.split()))}"
            folders.setdefault(folder, []).append(line)
    parts = [f"**`{folder}/`**\n\n" + "\n".join(lines) for folder, lines in folders.items()]
    return text + _MODULES + "\n" + "\n\n".join(parts)


# -- what a user can call or set ----------------------------------------------------------------

_SURFACE: Final = ROOT / "tests" / "golden" / "surface_of_91fc2ae.json"
_SURFACE_INTRO: Final = """\
# What there is, and where

Every command, setting and JSON-RPC method, the files that it lives in now, and those of commit
91fc2ae, before the papers' mechanisms and the measurements became packages of their own. This page
is generated by `scripts/generate_docs.py`; a test holds it equal to the code, and another that
nothing of 91fc2ae is gone, no option of a command either.
"""


def surface_page() -> str:
    """Return docs/surface.md."""
    now = runpy.run_path(str(ROOT / "scripts" / "list_surface.py"))["list_surface"]()
    former = json.loads(_SURFACE.read_text("utf-8"))
    parts = [_SURFACE_INTRO]
    for title, items in now.items():
        rows = [
            (f"`{name}`", _files(item), _files(former[title].get(name, {})) or "new")
            for name, item in items.items()
        ]
        head = (title.removesuffix("s"), "now in", "at 91fc2ae in")
        parts.append(f"## {title.capitalize()}\n\n{_table(head, rows)}\n")
    return "\n".join(parts)


def _files(item: dict[str, Any]) -> str:
    return ", ".join(f"`{file.removeprefix('memtier_plugin/')}`" for file in item.get("in", ()))


PAGES: Final = {
    "docs/cli.md": cli_page,
    "docs/settings.md": settings_page,
    "docs/architecture.md": architecture_page,
    "docs/surface.md": surface_page,
}


def run(check: bool) -> int:
    """Write the pages, or with ``check`` name those that are out of date."""
    stale = 0
    for name, page in PAGES.items():
        path, text = ROOT / name, page().rstrip() + "\n"
        if path.exists() and path.read_text("utf-8") == text:
            continue
        stale += 1
        if check:
            print(f"{name} is out of date: run `python scripts/generate_docs.py`")
        else:
            path.write_text(text, "utf-8")
            print(f"wrote {name}")
    return stale if check else 0


if __name__ == "__main__":
    sys.exit(run("--check" in sys.argv[1:]))
