"""Build a repository of git whose history is drawn by a seed, for `memtier bench code`.

It has 200 commits and 30 renames of files, and besides deletions, files that came back, a folder
that moved, branches that were merged, and symbols, commands and dependencies that went.
"""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

COMMITS: Final = 200
RENAMES: Final = 30
_FILES: Final = 90  # in the beginning
_SECONDS: Final = 5_000  # between two commits
_FIRST: Final = 1_735_700_000  # the first, in seconds since 1970
_FOLDERS: Final = (
    *("src/api", "src/core", "src/ui/forms", "src/jobs", "lib/text", "lib/net", "tools"),
    *("tests/unit", "services/mail"),
)
_FIRST_WORDS: Final = (
    *("retry", "page", "token", "invoice", "cache", "order", "schema", "queue", "upload"),
    *("locale", "ledger", "signal"),
)
_SECOND_WORDS: Final = (
    *("policy", "reader", "store", "format", "client", "router", "guard", "index", "mapper"),
    *("stream", "view", "clock"),
)
_MOVED_FOLDER: Final = "lib/text"
_DROPPED_FOLDER: Final = "src/ui/forms"
_PAGINATOR: Final = "src/core/paginator.py"
_SYMBOLS: Final = """\
class LegacyPaginator:  # legacy
def load_legacy_pages(): ...
function totalLegacyAmount() { }
class StablePaginator:
def load_stable_pages(): ...
"""
_ENDINGS: Final = (".py", ".ts", ".go")
_Event = Callable[[], None]
_RENAMED: Final = ("moved", "moved2", "twice", "lost")


@dataclass(slots=True)
class CodeRepository:
    """A repository that was built, and what became of its names.

    ``names`` has what the lines of a case call them; ``renamed`` has every other renamed file with
    its name now, ``deleted`` and ``returned`` the deleted ones and those that are there again.
    """

    top: Path
    names: dict[str, str]
    renamed: dict[str, str] = field(default_factory=dict)
    deleted: list[str] = field(default_factory=list)
    returned: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)


def build_repository(top: Path, seed: int) -> CodeRepository:
    """Build it in a folder that does not exist yet.

    Raises:
        OSError, CalledProcessError: git is missing, or failed.
    """
    builder = _Builder(random.Random(seed), top)
    builder.build()
    _git(top.parent, "init", "-q", "-b", "main", str(top))
    _git(top, "fast-import", "--quiet", "--force", given=b"".join(builder.stream))
    _git(top, "checkout", "-q", "-f", "main")
    for branch in ("branch", "branch2"):
        _git(top, "branch", "-q", "-D", builder.result.names[branch])
    return builder.result


def _git(folder: Path, *arguments: str, given: bytes = b"") -> None:
    nobody = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    subprocess.run(
        ("git", "-C", str(folder), *arguments),
        input=given,
        check=True,
        env={**os.environ, **nobody},
        capture_output=True,
    )


class _Builder:
    """Draws a history, and writes it as git's fast-import reads it."""

    def __init__(self, chance: random.Random, top: Path) -> None:
        self.chance = chance
        self.stream: list[bytes] = []
        self.files: dict[str, str] = {}
        self.result = CodeRepository(top, {"workspace": str(top)})
        self._commits = 0
        self._marks = 0
        self._waiting: list[bytes] = []
        self._main = 0  # the mark of its newest commit
        self._safe = ""  # a file that only grows
        self._folders: Sequence[str] = _FOLDERS
        self._names = self._draw_names()
        self._versions = {"react": "17.0.2", "axios": "0.21.1", "moment": "2.29.1"}
        self._scripts = ["build", "fixtures", "lint"]
        self._targets = ["deploy", "check", "docs"]

    def build(self) -> None:
        """Draw and write the whole history."""
        for _ in range(_FILES):
            path = next(self._names)
            self._write(path, self._content(path))
        self._write(_PAGINATOR, _SYMBOLS)
        self._write_manifests()
        self._commit("Begin")
        self._folders = [f for f in _FOLDERS if f not in (_MOVED_FOLDER, _DROPPED_FOLDER)]
        events = [*self._events()]
        fillers = COMMITS - 1 - len(events)
        moments = sorted(self.chance.sample(range(fillers), len(events)))
        for number in range(fillers):
            while moments and moments[0] <= number:
                moments.pop(0)
                events.pop(0)()
            self._edit_something()
        for event in events:
            event()
        names = self.result.names
        names |= {f"{n}_base": path.rpartition("/")[2] for n, path in names.items() if "/" in path}
        kept = [path for path in self.files if path not in names.values()]
        self.result.kept = self.chance.sample(sorted(kept), 12)

    # -- what happens ------------------------------------------------------------------------------

    def _events(self) -> Iterator[_Event]:
        """Yield what happens, in a drawn order that keeps what must come later behind."""
        names, pick = self.result.names, self._pick_files()
        for name in ("kept", "kept2", "gone", "gone2", "again", *_RENAMED):
            names[name] = next(pick)
        names |= {"folder": _MOVED_FOLDER, "dropped": _DROPPED_FOLDER}
        names["inner"] = next(path for path in self.files if path.startswith(_DROPPED_FOLDER))
        names["inner_moved"] = next(path for path in self.files if path.startswith(_MOVED_FOLDER))
        names["folder_new"] = "packages/strings"
        early: list[_Event] = [partial(self._rename_for, name) for name in _RENAMED]
        late: list[_Event] = [
            partial(self._rename_for, "twice"),
            lambda: self._delete(names["lost_new"]),
        ]
        others = [next(pick) for _ in range(RENAMES - 5)]
        early += [partial(self._rename_other, path) for path in others]
        deleted = [names["gone"], names["gone2"], *(next(pick) for _ in range(8))]
        self.result.deleted = deleted[2:]
        early += [partial(self._delete, path) for path in deleted]
        returning = [names["again"], *(next(pick) for _ in range(3))]
        self.result.returned = returning[1:]
        early += [partial(self._delete, path) for path in returning]
        late += [partial(self._return, path) for path in returning]
        early += [self._move_folder, self._drop_folder, self._lose_symbols, self._lose_commands]
        early += [self._raise_versions, self._merge_branches]
        self.chance.shuffle(early)
        self.chance.shuffle(late)
        return iter([*early, *late])

    def _pick_files(self) -> Iterator[str]:
        """Yield files that nothing else happens to."""
        others = (_DROPPED_FOLDER, _MOVED_FOLDER, _PAGINATOR)
        paths = sorted(p for p in self.files if "/" in p and not p.startswith(others))
        self.chance.shuffle(paths)
        self._safe, *rest = paths
        return iter(rest)

    def _rename_for(self, name: str) -> None:
        names = self.result.names
        new = self._rename(names.get(f"{name}_new", names[name]))
        names[f"{name}_new"] = new

    def _rename_other(self, path: str) -> None:
        self.result.renamed[path] = self._rename(path)

    def _rename(self, path: str) -> str:
        new = next(self._names)
        kind = self.chance.randrange(3)
        folder, _, last = path.rpartition("/")
        if kind == 0:  # in its folder
            new = f"{folder}/{new.rpartition('/')[2]}"
        elif kind == 1 and new.rpartition("/")[0] != folder:  # to another folder, by its name
            new = f"{new.rpartition('/')[0]}/{last}"
        while new in self.files:
            new = next(self._names)
        new = new.rpartition(".")[0] + path[path.rindex(".") :]
        content = self.files.pop(path)
        self._waiting.append(f"R {path} {new}\n".encode())
        self.files[new] = content
        if self.chance.random() < 0.5:  # with a change
            self._write(new, f"{content}# {self.chance.random()}\n")
        self._commit(f"Rename {path}")
        return new

    def _delete(self, path: str) -> None:
        self._remove(path)
        self._commit(f"Delete {path}")

    def _return(self, path: str) -> None:
        self._write(path, self._content(path) + "# again\n")
        self._commit(f"Bring {path} back")

    def _move_folder(self) -> None:
        names = self.result.names
        for path in [p for p in self.files if p.startswith(f"{names['folder']}/")]:
            new = names["folder_new"] + path.removeprefix(names["folder"])
            self._waiting.append(f"R {path} {new}\n".encode())
            self.files[new] = self.files.pop(path)
            if path == names["inner_moved"]:
                names["inner_moved_new"] = new
        self._commit("Move the helpers of strings")

    def _drop_folder(self) -> None:
        for path in [p for p in self.files if p.startswith(f"{self.result.names['dropped']}/")]:
            self._remove(path)
        self._commit("Drop the old forms")

    def _lose_symbols(self) -> None:
        self.result.names |= {
            "symbol": "LegacyPaginator",
            "function": "load_legacy_pages",
            "method": "totalLegacyAmount",
            "kept_symbol": "StablePaginator",
            "kept_function": "load_stable_pages",
        }
        lines = self.files[_PAGINATOR].splitlines(keepends=True)
        self._write(_PAGINATOR, "".join(line for line in lines if "egacy" not in line))
        self._commit("Remove what nobody calls")

    def _lose_commands(self) -> None:
        names = self.result.names
        names |= {"target": "deploy", "script": "fixtures", "gone_word": "deploy"}
        names |= {"kept_target": "check", "kept_script": "lint"}
        self._targets.remove("deploy")
        self._scripts.remove("fixtures")
        self._write_manifests()
        self._commit("Remove old commands")

    def _raise_versions(self) -> None:
        names = self.result.names
        names |= {"package": "react", "old": "17.0.2", "new": "18.3.1"}
        names |= {"gone_package": "moment", "gone_version": "2.29.1"}
        self._versions["react"] = "18.3.1"
        del self._versions["moment"]
        self._write_manifests()
        self._commit("Raise what we depend on")

    def _merge_branches(self) -> None:
        names = self.result.names
        names |= {"branch": "feature/new-parser", "branch2": "fix-rounding"}
        names["kept_branch"] = "release/2.x"
        before = self._marks
        self.stream.append(f"reset refs/heads/{names['kept_branch']}\nfrom :{before}\n\n".encode())
        for name, subject in (
            ("branch", "Merge branch 'feature/new-parser'"),
            ("branch2", "Merge pull request #7 from acme/fix-rounding"),
        ):
            content = self.files[self._safe] + f"# {name}\n"
            self._write(self._safe, content)
            self._commit("Work", branch=names[name], parent=before)
            side, self._waiting = self._marks, []
            self._write(self._safe, content)
            self._commit(subject, merged=side)
            before = self._marks

    def _edit_something(self) -> None:
        if self.chance.random() < 0.1:
            path = next(self._names)
            if path not in self.files:
                self._write(path, self._content(path))
                self._commit(f"Add {path}")
                return
        path = self.chance.choice(sorted(p for p in self.files if "/" in p))
        self._write(path, f"{self.files[path]}# {self.chance.random()}\n")
        self._commit(f"Edit {path}")

    # -- files -------------------------------------------------------------------------------------

    def _draw_names(self) -> Iterator[str]:
        """Yield paths, none twice; their last parts differ too."""
        pairs = [(first, second) for first in _FIRST_WORDS for second in _SECOND_WORDS]
        self.chance.shuffle(pairs)
        for number, (first, second) in enumerate([*pairs, *pairs]):
            folder, ending = self.chance.choice(self._folders), self.chance.choice(_ENDINGS)
            name = f"{first}_{second}" if ending != ".ts" else f"{first}{second.title()}"
            name += "" if number < len(pairs) else "_2"
            yield f"{folder}/{name}{ending}"

    def _content(self, path: str) -> str:
        name = path.rpartition("/")[2].partition(".")[0]
        lines = [f"def {verb}_{name}(value):\n    return value\n" for verb in ("open", "close")]
        lines += [f"# {self.chance.random()}\n" for _ in range(8)]
        return f"# {name}\n" + "".join(lines)

    def _write_manifests(self) -> None:
        scripts = ",\n".join(f'    "{name}": "node {name}.js"' for name in self._scripts)
        versions = ",\n".join(f'    "{n}": "^{v}"' for n, v in self._versions.items())
        self._write(
            "package.json",
            f'{{\n  "scripts": {{\n{scripts}\n  }},\n  "dependencies": {{\n{versions}\n  }}\n}}\n',
        )
        self._write("Makefile", "".join(f"{name}:\n\t./{name}.sh\n" for name in self._targets))

    def _write(self, path: str, content: str) -> None:
        self.files[path] = content
        data = content.encode()
        self._waiting.append(f"M 100644 inline {path}\ndata {len(data)}\n".encode() + data + b"\n")

    def _remove(self, path: str) -> None:
        del self.files[path]
        self._waiting.append(f"D {path}\n".encode())

    def _commit(
        self, message: str, *, branch: str = "main", parent: int = 0, merged: int = 0
    ) -> None:
        before = parent or self._main
        self._marks += 1
        if branch == "main":
            self._commits += 1
            self._main = self._marks
        when = _FIRST + self._marks * _SECONDS
        data = message.encode()
        head = f"commit refs/heads/{branch}\nmark :{self._marks}\n"
        head += f"committer Ana <ana@example.com> {when} +0000\ndata {len(data)}\n"
        parents = (f"from :{before}\n" if before else "") + (f"merge :{merged}\n" if merged else "")
        self.stream += [head.encode(), data, b"\n", parents.encode(), *self._waiting, b"\n"]
        self._waiting = []
