"""The common options of all commands: their values, completion, output and errors."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from memtier_plugin.cli.commands import COMMON_OPTIONS
from memtier_plugin.core.errors import IndexProblem, LedgerError, MemTierError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem
    from rich.console import RenderableType

    from memtier_plugin.memory import MemTier
    from memtier_plugin.storage.readers import Reader

    Values = Iterable[tuple[str, str]]  # value and description

OptionDecorator = Callable[[Callable[..., Any]], Callable[..., Any]]
Completer = Callable[[click.Context, click.Parameter, str], "list[CompletionItem]"]

_MOST_IDS: Final = 200  # the newest ones
_HELP_CHARS: Final = 60  # of an item's text shown beside its id
_FILE_AND_LINE: Final = re.compile(r"\.\w+:\d+")


@dataclass
class Scope:
    """The common options: home, project, agent and output format."""

    home: str | None = None
    project: str | None = None
    agent: str | None = None
    as_json: bool = False
    no_pager: bool = False

    @property
    def path(self) -> Path:
        """The home in use."""
        from memtier_plugin.core.paths import resolve_home

        return resolve_home(self.home)

    @property
    def project_name(self) -> str:
        """The named project, else this folder's, else the hosts'.

        A folder has a project if it is bound to one, or one was created for it.
        """
        if self._named_project:
            return self._named_project
        from memtier_plugin.core.paths import encode_file_name
        from memtier_plugin.core.settings.load import bound_project

        folders = self.folder_project
        if (
            bound_project(self.path, Path.cwd())
            or (self.path / "projects" / encode_file_name(folders)).is_dir()
        ):
            return folders
        from memtier_plugin.hosts.presence import configured_project
        from memtier_plugin.hosts.project import hosts_project

        return hosts_project(self.path) or configured_project(self.path) or folders

    @property
    def folder_project(self) -> str:
        """The named project, else MEMTIER_PROJECT, else this folder's, existing or not."""
        if self._named_project:
            return self._named_project
        from memtier_plugin.core.settings.load import resolve_project

        return resolve_project(self.path, Path.cwd())

    @property
    def _named_project(self) -> str | None:
        return self.project or os.environ.get("MEMTIER_PROJECT")

    def open(self, *, create: bool = False, everybody: bool = False) -> MemTier:
        """Open the memory, creating it only for commands that write.

        Args:
            everybody: without --agent, read every agent's entries.
        """
        from memtier_plugin.memory import MemTier

        project = self.project_name
        memory = MemTier.open(
            self.path,
            project,
            self.agent or "main",
            workspace=Path.cwd(),
            create=create or project != self.folder_project,  # the hosts' project always exists
            everybody=everybody and self.agent is None,
        )
        if memory.store.project_folder.purge_plan.exists():
            with suppress(MemTierError):  # another process completes it; `status` reports it
                memory.purger.complete(wait=0)
        return memory

    def show(
        self,
        document: Mapping[str, Any],
        view: Callable[[Mapping[str, Any]], RenderableType] | None = None,
    ) -> None:
        """Print a document as JSON, or rendered by the view [keys and values]."""
        if self.as_json:
            click.echo(json.dumps(document))  # ASCII, so no control characters reach the terminal
            return
        from memtier_plugin.cli import views
        from memtier_plugin.cli.views import print_paged

        print_paged([(view or views.done_view)(document)], paged=not self.no_pager)


def scope_of(ctx: click.Context) -> Scope:
    return ctx.ensure_object(Scope)


# -- Completion in the shell: projects, agents, sessions and the short ids of items and recalls
#
# Click calls these completers; the context's object is the `Scope` (`CliGroup.make_context`). On an
# error they return nothing, because a message would appear in the user's command line.


def complete_projects(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete the name of a project of this home."""
    from memtier_plugin.core.paths import list_projects

    try:
        names = list_projects(ctx.obj.path)
    except (MemTierError, OSError):
        return []
    return _matching(((name, "") for name in names), incomplete)


def _from_reader(values: Callable[[Reader], Values]) -> Completer:
    """Return a completer that reads the project's index."""

    def complete(
        ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        try:
            with ctx.obj.open() as memory, memory.store.session() as reader:
                return _matching(values(reader), incomplete)
        except (MemTierError, OSError):
            return []

    return complete


def _agents(reader: Reader) -> Values:
    return ((agent, "") for agent in reader.all_sessions())


def _sessions(reader: Reader) -> Values:
    for span in reader.session_spans():
        yield span.session, f"{span.entries} lines by {span.agent}"


def _items(reader: Reader) -> Values:
    return _texts(reader, reader.newest_ids(_MOST_IDS))


def _facts(reader: Reader) -> Values:
    return _texts(reader, reader.newest_ids(_MOST_IDS, tier="semantic"))


def _forgotten(reader: Reader) -> Values:
    from memtier_plugin.cli.views import short_id

    return ((short_id(item), "") for item in reader.newest_ids(_MOST_IDS, forgotten=True))


def _recalls(reader: Reader) -> Values:
    from memtier_plugin.cli.views import short_id

    for event in reversed(reader.events(["recall"], newest=_MOST_IDS)):
        yield short_id(event.id), str(event.data.get("query", ""))


def _texts(reader: Reader, ids: list[str]) -> Values:
    from memtier_plugin.cli.views import short_id

    text_of = {item.id: item.text for item in reader.list_items(ids)}
    return ((short_id(item), text_of.get(item, "")) for item in ids)


def _matching(values: Values, incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    from memtier_plugin.cli.views import escape_controls, one_line

    begin = incomplete.casefold()
    return [
        CompletionItem(value, help=escape_controls(one_line(text, _HELP_CHARS)) or None)
        for value, text in values
        if value.casefold().startswith(begin)
    ]


complete_agents = _from_reader(_agents)
complete_sessions = _from_reader(_sessions)
complete_items = _from_reader(_items)
complete_facts = _from_reader(_facts)
complete_forgotten = _from_reader(_forgotten)
complete_recalls = _from_reader(_recalls)


# -- Options and commands


def _store_option(ctx: click.Context, param: click.Parameter, value: object) -> None:
    if value:
        setattr(scope_of(ctx), "as_json" if param.name == "json" else str(param.name), value)


def _option(
    flag: str, metavar: str | None, help_text: str, complete: Completer | None = None
) -> click.Option:
    return click.Option(
        [flag],
        shell_complete=complete,
        metavar=metavar,
        is_flag=metavar is None,
        expose_value=False,
        callback=_store_option,
        help=help_text,
    )


def common_options() -> list[click.Parameter]:
    completers = {"--project": complete_projects, "--agent": complete_agents}
    return [
        _option(flag, metavar, text, completers.get(flag)) for flag, metavar, text in COMMON_OPTIONS
    ]


def limit_option(default: int, help: str) -> OptionDecorator:
    """Return the option that limits the rows shown."""
    return click.option(
        "--limit",
        type=click.IntRange(1),
        metavar="N",
        default=default,
        show_default=True,
        help=help,
    )


def combine_options(*decorators: OptionDecorator) -> OptionDecorator:
    """Combine options and arguments, in the help's order."""
    return lambda command: reduce(lambda done, add: add(done), reversed(decorators), command)


class _Pointing(click.Command):
    """A command whose usage errors all point to its help, which click forgets for some."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments."""
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx
            raise


class ExampleCommand(_Pointing):
    """A command whose help shows example arguments."""

    def __init__(self, *args: Any, example: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.example = example

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the example, then the epilog."""
        _write_example(ctx, formatter)
        super().format_epilog(ctx, formatter)


class CliCommand(ExampleCommand):
    """A command that accepts the common options, before or after its name."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        existing = {param.name for param in self.params}
        self.params += [param for param in common_options() if param.name not in existing]


# Commands of MemTier's other packages, and the package to install.
ELSEWHERE: Final = {
    "bench": "memtier-bench",
    "learn": "memtier-bench",
    "people show": "memtier-papers",
    "uplift": "memtier-papers",
}


class CliGroup(_Pointing, click.Group):
    """A group whose commands accept the common options; errors are reported with exit code 1."""

    command_class = CliCommand
    group_class = type

    def __init__(self, *args: Any, example: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.example = example
        self.aliases: Mapping[str, str] = {}

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; for an unknown name, suggest the package to install or the nearest."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            from difflib import get_close_matches

            if self.get_command(ctx, args[0]) is not None:
                raise
            words = f"{ctx.command_path} {args[0]}".partition(" ")[2]
            if package := ELSEWHERE.get(words):
                from memtier_plugin.core.installation import install_command

                message = (
                    f"`memtier {words}` is a separate package: run `{install_command(package)}`"
                )
                raise click.UsageError(message, ctx) from None
            near = get_close_matches(args[0], [*self.list_commands(ctx), *self.aliases], n=1)
            if not near:
                raise
            message = f"No such command {args[0]!r}. Did you mean {near[0]}?"
            raise click.UsageError(message, ctx) from None

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Return the context with the common options given so far."""
        context = super().make_context(*args, **kwargs)
        scope_of(context)
        return context

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the example, then the epilog."""
        _write_example(ctx, formatter)
        super().format_epilog(ctx, formatter)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a MemTierError becomes a message on stderr and exit 1."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise  # click exits quietly when the pipe is closed
        except (
            MemTierError,
            OSError,
            OverflowError,
        ) as error:  # OverflowError: a date out of range
            if scope_of(ctx).as_json:
                click.echo(json.dumps({"error": str(error), "kind": type(error).__name__}))
            from memtier_plugin.cli.views import escape_controls

            command = f"{ctx.command_path} {ctx.invoked_subcommand or ''}".rstrip()
            click.echo(f"memtier: {escape_controls(_add_next_step(error, command))}", err=True)
            ctx.exit(1)


def _add_next_step(error: Exception, command: str) -> str:
    """Return an error's message, with a command to run next if it names none."""
    message = str(error)
    if "`" in message or _FILE_AND_LINE.search(message):
        return message
    if isinstance(error, (LedgerError, IndexProblem)):
        return f"{message}; `memtier doctor` looks for the cause"
    return f"{message}; see `{command} --help`"


def example_of(command: click.Command, words: str) -> str:
    """Return a command's example, its own or its plugin's."""
    if example := getattr(command, "example", ""):
        return f"memtier {words} {example}"
    from memtier_plugin.cli.commands import find_commands

    examples = {
        name: each for spec in find_commands().values() for name, each in spec.examples.items()
    }
    return f"memtier {words} {examples.get(words, '')}".rstrip()


def _write_example(ctx: click.Context, formatter: click.HelpFormatter) -> None:
    if words := ctx.command_path.partition(" ")[2]:
        with formatter.section("Example"):
            line = example_of(ctx.command, words)
            formatter.write(f"{'':>{formatter.current_indent}}{line}\n")


@contextmanager
def progress_bar() -> Iterator[Callable[[str, int, int], None]]:
    """Show a progress bar on stderr if it is a terminal; yield the update function."""
    from rich.progress import Progress

    from memtier_plugin.cli import views

    console = views.make_console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=None)

        def report(label: str, done: int, total: int) -> None:
            bar.update(task, description=views.escape_controls(label), completed=done, total=total)

        yield report
