"""What a repository's history says of its files, symbols, branches, commands and versions.

It is read from git once and kept; see `workspace`.  Only what the history had can be gone from it:
of any other name nothing is known.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct

from memtier_plugin.core import lazy_regex as regex
from memtier_plugin.core.git import Repository

_COMMITS: Final = 5_000  # whose files are followed, the newest
_PATCHES: Final = 300  # whose changes are read for symbols and manifests
_MOST_FILES: Final = 200_000  # of a work tree; a larger one is left alone
_LONGEST: Final = 400  # characters of a changed line that may define something
_STATUS: Final = ("--name-status", "-M", "--no-ext-diff", "--no-textconv", "--no-color")
_MARK: Final = "\x01"  # begins a commit in what git prints
_MERGED: Final = regex.compile(
    r"^Merge (?:remote-tracking )?branch(?:es)? '(?:origin/)?([^']+)'"
    r"|^Merge pull request #\d+ from [^/\s]+/(\S+)"
)
_CHECKOUT: Final = regex.compile(r"^checkout: moving from (\S+) to (\S+)$")
_MODIFIERS: Final = (
    r"(?:(?:export|default|pub(?:\([^)]*\))?|public|private|protected|static|abstract|async|final)"
    r"\s+)*"
)
_DEFINITION: Final = regex.compile(
    rf"\s*{_MODIFIERS}(?:def|class|function\*?|func(?:\s*\([^)]*\))?|fn|interface|type|struct"
    r"|enum|trait|const|let|var|record|object)\s+([A-Za-z_$][\w$]{2,})"
    r"|\s+(?:async\s+)?(?!(?:if|for|while|switch|catch|return)\b)([A-Za-z_$][\w$]{2,})"
    r"\s*\([^;]*\)\s*(?::[^{;]+)?\{\s*$"
)
_SCRIPT: Final = regex.compile(r'^\s+"([^"]+)":\s+"([^"]*)"')
_TARGET: Final = regex.compile(r"^([\w.-]+)\s*:(?!=)")
_VERSION: Final = regex.compile(r"^(?:[\^~v]|[~>=<]=?)?\s*(\d+(?:\.\d+)*)")
_REQUIREMENT: Final = regex.compile(
    r"^\s*\"?'?([A-Za-z][\w./-]*)(?:\[[^\]]*\])?\s*"
    r"(?:==|~=|>=|\^|=\s*\"?[\^~=]?|\s+v(?=\d))\s*\"?(\d+(?:\.\d+)*)"
)
_MANIFESTS: Final = (
    *("*package.json", "*Makefile", "*justfile", "*requirements*.txt", "*pyproject.toml"),
    *("*Cargo.toml", "*go.mod"),
)


class NameChange(Struct, frozen=True):
    """What became of a name: the commit since which it is gone, and its new name, if it has one.

    ``since`` is empty for a change that is not committed yet.
    """

    since: str
    now: str = ""
    is_folder: bool = False


class Dependency(Struct, frozen=True):
    """The versions of a package: those it has now, in any manifest, and when it lost others."""

    now: frozenset[str]
    lost: Mapping[str, str]


class CodeHistory(Struct, frozen=True):
    """A repository's names, those that it has and those that it had.

    Attributes:
        now: its files and folders, by their last part.
        then: those that it had, by their last part, and what became of each.
        symbols, branches: gone ones, with the commit since which they are.
        commands: gone targets and scripts, by "target" or "script" and name.
        dependencies: by the package's name in small letters.
    """

    now: Mapping[str, tuple[str, ...]]
    then: Mapping[str, tuple[tuple[str, NameChange], ...]]
    symbols: Mapping[str, str]
    branches: Mapping[str, str]
    commands: Mapping[tuple[str, str], str]
    dependencies: Mapping[str, Dependency]


class HistoryReader:
    """Reads a repository's names; a later reading goes on from the commit of the one before."""

    def __init__(self, repository: Repository) -> None:
        self.repository = repository
        self.history: CodeHistory | None = None
        self._state: object = None  # of the work tree, when the history was read
        self._restart()

    def _restart(self) -> None:
        self._head = ""
        self._files, self._patches = _Files(), _Patches()

    def read(self) -> CodeHistory | None:
        """Return its names now; None if git does not answer, or the work tree is too large."""
        ask = self.repository.read
        files, missing = _list_files(self.repository)
        head = ask("rev-parse", "HEAD")
        refs = ask("for-each-ref", "--format=%(refname)", "refs/heads", "refs/remotes")
        if files is None or len(files) > _MOST_FILES or not head or refs is None:
            self.history = None
            return None
        # Of the index alone: to compare the work tree git would run the filters of its settings.
        waiting = ask("diff", "--cached", *_STATUS, "HEAD") or ""
        waiting += "".join(f"D\t{path}\n" for path in missing)
        state = head, refs, frozenset(files), waiting
        if state != self._state:
            self._follow(head.strip())
            self.history = self._combine(files, refs, waiting)
            self._state = state
        return self.history

    def _follow(self, head: str) -> None:
        """Read the commits since the last reading."""
        since, self._head = self._head, head
        if since and self.repository.read("merge-base", "--is-ancestor", since, head) is None:
            self._restart()
            since, self._head = "", head
        new = f"{since}..{head}" if since else head
        log = ("log", "--first-parent", "-m", "--reverse")
        files = self.repository.lines(
            *log, f"-n{_COMMITS}", f"--format={_MARK}%h %s", *_STATUS, new, "--"
        )
        patches = self.repository.lines(
            *log, f"-n{_PATCHES}", f"--format={_MARK}%h", "-p", "-U0", *_STATUS[1:], new, "--"
        )
        self._files.follow(files)
        self._patches.follow(patches)

    def _combine(self, files: set[str], refs: str, waiting: str) -> CodeHistory:
        known = self._files.copy()
        known.follow([_MARK, *waiting.splitlines()])
        moves = known.changes()
        folders = {parent for file in files for parent in _parents(file)}
        gone = {path: change for path, change in moves.items() if path not in files}
        gone |= {
            path: change
            for path, change in _follow_folders(moves, files).items()
            if path not in folders
        }
        commands, dependencies = _read_manifests(self.repository, self._patches.lost)
        return CodeHistory(
            _by_last_part(files | folders),
            {
                name: tuple((path, gone[path]) for path in paths)
                for name, paths in _by_last_part(gone).items()
            },
            _without_used(self.repository, self._patches.symbols),
            _find_gone_branches(self.repository, refs, known.merged),
            commands,
            dependencies,
        )


def _by_last_part(paths: Iterable[str]) -> dict[str, tuple[str, ...]]:
    named: dict[str, list[str]] = {}
    for path in sorted(paths):
        named.setdefault(path.rpartition("/")[2], []).append(path)
    return {name: tuple(each) for name, each in named.items()}


def _parents(path: str) -> Iterator[str]:
    while path := path.rpartition("/")[0]:
        yield path


# -- files -----------------------------------------------------------------------------------------


def _list_files(repository: Repository) -> tuple[set[str] | None, list[str]]:
    """Return the files of the work tree, also those that git does not follow, and missing ones.

    The first is None where git does not answer.
    """
    listed = repository.read("ls-files", "-z", "--cached", "--others", "--exclude-standard")
    missing = repository.read("ls-files", "-z", "--deleted")
    if listed is None or missing is None:
        return None, []
    lost = {*missing.split("\0")} - {""}
    return {*listed.split("\0")} - lost - {""}, sorted(lost)


class _Files:
    """Follows files from commit to commit, each from its first name to its last.

    One name may have had two files: of these the last counts.
    """

    def __init__(self) -> None:
        self._at: dict[str, int] = {}  # the last file that had a name
        self._places: list[NameChange] = []  # where each file is now
        self.merged: dict[str, str] = {}  # branches, with the commits that merged them

    def copy(self) -> _Files:
        """Return the same, to follow further without changing this."""
        new = _Files()
        new._at, new._places, new.merged = {**self._at}, [*self._places], {**self.merged}
        return new

    def changes(self) -> dict[str, NameChange]:
        """Return what became of each path."""
        return {path: self._places[file] for path, file in self._at.items()}

    def follow(self, lines: Iterable[str]) -> None:
        """Take in commits, the oldest first, each with what it did to files."""
        commit = ""
        for line in lines:
            if line.startswith(_MARK):
                commit, _, subject = line[1:].partition(" ")
                if merge := _MERGED.search(subject):
                    self.merged[merge[1] or merge[2]] = commit
                continue
            status, _, rest = line.partition("\t")
            old, _, new = rest.partition("\t")
            if old and '"' not in rest:  # else a name with odd characters
                self._change(status, old, new, commit)

    def _change(self, status: str, old: str, new: str, commit: str) -> None:
        known = self._at.get(old)
        lives = known is not None and self._places[known].now == old
        if status.startswith("R"):
            self._put(old, NameChange(commit, new), known if lives else None)
            self._put(new, NameChange(commit, new), self._at[old])
        elif status == "D":
            self._put(old, NameChange(commit), known if lives else None)
        elif status == "A" or not lives:
            self._put(old, NameChange(commit, old), None)

    def _put(self, path: str, change: NameChange, file: int | None) -> None:
        if file is None:
            file = len(self._places)
            self._places.append(change)
        self._at[path], self._places[file] = file, change


def _follow_folders(
    moves: Mapping[str, NameChange], files: Collection[str]
) -> dict[str, NameChange]:
    """Return what became of each folder of the history.

    It is renamed if all of its files that still exist are below a single folder, by the same names.
    """
    inside: dict[str, list[tuple[str, NameChange]]] = {}
    for path, change in moves.items():
        for parent in _parents(path):
            inside.setdefault(parent, []).append((path.removeprefix(parent), change))
    changes = {}
    for folder, members in inside.items():
        existing = [(rest, c) for rest, c in members if c.now in files and c.now]
        tops = {c.now.removesuffix(rest) for rest, c in existing if c.now.endswith(rest)}
        last = members[-1][1].since
        in_order = len(tops) == 1 and all(c.now.endswith(rest) for rest, c in existing)
        changes[folder] = NameChange(last, next(iter(tops)) if in_order else "", is_folder=True)
    return changes


# -- symbols and manifests -------------------------------------------------------------------------

_Lost = dict[tuple[str, str, str], str]  # kind, name and version of an entry: the commit without it


class _Patches:
    """Follows what commits took from manifests, and the definitions that they removed."""

    def __init__(self) -> None:
        self.lost: _Lost = {}
        self.symbols: dict[str, str] = {}

    def follow(self, lines: Iterable[str]) -> None:
        """Take in commits, the oldest first, each with its changed lines."""
        commit = file = ""
        removed, added = set[str](), set[str]()
        for line in lines:
            if line.startswith(("+++ ", "--- ")):
                file = line[6:] if line[4:6] in ("a/", "b/") else file
            elif line.startswith(("+", "-")) and len(line) < _LONGEST:
                if line[0] == "-":
                    for key in _manifest_entries(file, line[1:]):
                        self.lost[key] = commit
                if definition := _DEFINITION.match(line, 1):
                    (removed if line[0] == "-" else added).add(definition[1] or definition[2])
            elif line.startswith(_MARK):
                self._settle(removed, added, commit)
                commit = line[1:]
        self._settle(removed, added, commit)

    def _settle(self, removed: set[str], added: set[str], commit: str) -> None:
        for name in added:
            self.symbols.pop(name, None)
        for name in removed - added:
            self.symbols[name] = commit
        removed.clear()
        added.clear()


def _without_used(repository: Repository, gone: Mapping[str, str]) -> dict[str, str]:
    """Return the symbols of which the code has not a word any more."""
    left = dict(gone)
    words = r"[A-Za-z_$][A-Za-z0-9_$]{2,}"
    for word in (
        repository.lines("grep", "--untracked", "-I", "-h", "-o", "-E", words) if left else ()
    ):
        left.pop(word, None)
    return left


def _manifest_entries(file: str, line: str) -> Iterator[tuple[str, str, str]]:
    """Yield what a line of a manifest declares: kind, name and version."""
    base = Path(file).name
    if base == "package.json":
        if entry := _SCRIPT.match(line):
            version = _VERSION.match(entry[2])
            yield ("version", entry[1], version[1]) if version else ("script", entry[1], "")
    elif base in ("Makefile", "justfile"):
        if target := _TARGET.match(line):
            yield "target", target[1], ""
    elif base.endswith((".txt", ".toml", ".mod")) and (entry := _REQUIREMENT.match(line)):
        yield "version", entry[1], entry[2]


def _read_manifests(
    repository: Repository, lost: _Lost
) -> tuple[dict[tuple[str, str], str], dict[str, Dependency]]:
    """Return the commands that are gone, and the packages that lost a version."""
    if not lost:
        return {}, {}
    lines = repository.read("grep", "--untracked", "-I", "-e", "", "--", *_MANIFESTS)
    if lines is None:
        return {}, {}
    entries = {
        entry
        for line in lines.splitlines()
        for entry in _manifest_entries(*line.partition(":")[::2])
    }
    commands = {(kind, name) for kind, name, _ in entries}
    gone = {
        (kind, name): commit
        for (kind, name, _), commit in lost.items()
        if kind != "version" and (kind, name) not in commands
    }
    versions: dict[str, tuple[set[str], dict[str, str]]] = {}
    for (kind, name, version), commit in lost.items():
        if kind == "version" and (kind, name, version) not in entries:
            versions.setdefault(name.lower(), (set(), {}))[1].setdefault(version, commit)
    for kind, name, version in entries:
        if kind == "version" and name.lower() in versions:
            versions[name.lower()][0].add(version)
    return gone, {name: Dependency(frozenset(now), old) for name, (now, old) in versions.items()}


# -- branches --------------------------------------------------------------------------------------


def _find_gone_branches(
    repository: Repository, refs: str, merged: Mapping[str, str]
) -> dict[str, str]:
    """Return the branches that were merged or checked out once, and are no more."""
    there = set[str]()
    for ref in refs.splitlines():
        _, kind, name = ref.split("/", 2)
        there.add(name.partition("/")[2] if kind == "remotes" else name)
    past = dict(merged)
    for line in (repository.read("reflog", "show", "--format=%gs", "HEAD") or "").splitlines():
        if checkout := _CHECKOUT.match(line):
            for name in checkout.groups():
                past.setdefault(name, "")
    is_commit = regex.compile(r"[0-9a-f]{7,40}$|HEAD")
    return {
        name: commit
        for name, commit in past.items()
        if name not in there and not is_commit.match(name)
    }
