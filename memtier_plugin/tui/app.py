"""`memtier tui`: review what waits, and read the log, on a full screen of the terminal.

It draws the same view models as the commands and the web view, and decides nothing by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Final

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.screen import ModalScreen
from textual.timer import Timer
from textual.widgets import (
    DataTable,
    Footer,
    Header,
    Input,
    Label,
    OptionList,
    Static,
    TabbedContent,
    TabPane,
)
from textual.widgets.option_list import Option

from memtier_plugin.core.errors import MemTierError
from memtier_plugin.facts.review import ReviewItem, ReviewOutcome
from memtier_plugin.memory import MemTier
from memtier_plugin.retrieval.block import SHORT_ID_CHARS
from memtier_plugin.trust.escaping import escape_controls
from memtier_plugin.views.history import LineHistory, bar, signed_sparkline, sparkline
from memtier_plugin.views.journal import LogLine, RankedRow, RecallView, list_days, summarise
from memtier_plugin.views.reading import read_line_history, read_log_lines, read_recall

_REST: Final = 0.1  # seconds on a line before its history is read
_BAR: Final = 16  # columns of a signal's bar
_HIDDEN: Final = "(forgotten, or another agent's)"
_SHOWN: Final = 30  # recalls and credits of a line, the newest


class MemTierApp(App[None]):
    """The review queue and the log of one project."""

    TITLE = "MemTier"
    CSS = """
    #queue, #lines { width: 55%; height: 1fr; }
    .detail { width: 45%; height: 1fr; padding: 0 1; border-left: solid $panel; }
    .title { padding: 0 1; color: $text-muted; }
    EditScreen { align: center middle; }
    EditScreen > Input { width: 80%; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        ("1", "show('review')", "Review"),
        ("2", "show('log')", "Log"),
        ("q", "quit", "Quit"),
    ]

    def __init__(self, memory: MemTier, agent: str | None = None) -> None:
        """Show a memory; the log of one agent, or of all."""
        super().__init__()
        self._memory = memory
        self._agent = agent
        self.sub_title = escape_controls(memory.project)

    def compose(self) -> ComposeResult:
        """Lay out the two panes."""
        yield Header()
        with TabbedContent(id="tabs"):
            yield ReviewPane(self._memory)
            yield LogPane(self._memory, self._agent)
        yield Footer()

    def on_mount(self) -> None:
        """Start with what waits, or with the log if nothing does."""
        waits = self.query_one(ReviewPane).load()
        self.query_one(LogPane).load()
        self.action_show("review" if waits else "log")

    def action_show(self, pane: str) -> None:
        """Show a pane, and put the keys into its list."""
        self.query_one("#tabs", TabbedContent).active = pane
        self.query_one({"review": "#queue", "log": "#lines"}[pane]).focus()


# -- review --------------------------------------------------------------------------------------


class ReviewPane(TabPane):
    """What awaits a decision: the list, and the selected item in full."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("a", "decide('accept')", "Accept"),
        ("r", "decide('reject')", "Reject"),
        ("e", "edit", "Edit"),
    ]

    def __init__(self, memory: MemTier) -> None:
        super().__init__("Review", id="review")
        self._memory = memory
        self._items: Sequence[ReviewItem] = ()

    def compose(self) -> ComposeResult:
        """Lay out the list and the item."""
        yield Label("", id="waits", classes="title", markup=False)
        with Horizontal():
            yield OptionList(id="queue")
            with VerticalScroll(classes="detail"):
                yield Static("", id="item", markup=False)

    def load(self) -> int:
        """Read the queue, keep the position in it, and return its length."""
        queue = self.query_one("#queue", OptionList)
        position = queue.highlighted or 0
        self._items = self._memory.knowledge.person.review_queue()
        queue.clear_options()
        queue.add_options([Option(plain(item.text)) for item in self._items])
        count = len(self._items)
        label = f"{count} wait" if count else "Nothing awaits review."
        self.query_one("#waits", Label).update(label)
        if count:
            queue.highlighted = min(position, count - 1)
        self._show(self._selected())
        return count

    def on_option_list_option_highlighted(self) -> None:
        """Show the selected item."""
        self._show(self._selected())

    def action_decide(self, verdict: str) -> None:
        """Accept or reject the selected item; the decision is written at once."""
        if item := self._selected():
            person = self._memory.knowledge.person
            decide = person.accept if verdict == "accept" else person.reject
            self._write(lambda: decide([item.id]))

    def action_edit(self) -> None:
        """Ask for a new wording of the selected item."""
        item = self._selected()
        if item is None or item.fact is None or item.kind == "forget":
            return

        def write(words: str | None) -> None:
            if words and words != item.text:
                self._write(lambda: [self._memory.edit_fact(item.id, words)])

        self.app.push_screen(EditScreen(item.text), write)

    def _selected(self) -> ReviewItem | None:
        position = self.query_one("#queue", OptionList).highlighted
        return self._items[position] if self._items and position is not None else None

    def _write(self, decide: Callable[[], Sequence[ReviewOutcome]]) -> None:
        try:
            for outcome in decide():
                self.notify(f"{outcome.id[-SHORT_ID_CHARS:]} {outcome.now}", markup=False)
        except MemTierError as error:  # decided elsewhere in the meantime
            self.notify(escape_controls(error), severity="error", markup=False)
        self.load()

    def _show(self, item: ReviewItem | None) -> None:
        self.query_one("#item", Static).update(item_text(item) if item else "")


class EditScreen(ModalScreen[str | None]):
    """Asks for a new wording; escape keeps the old one."""

    BINDINGS: ClassVar[list[BindingType]] = [("escape", "dismiss", "Keep the old one")]

    def __init__(self, words: str) -> None:
        super().__init__()
        self._words = words

    def compose(self) -> ComposeResult:
        """Show the words to change."""
        yield Input(self._words)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Hand back the new wording."""
        self.dismiss(event.value)


# -- log -----------------------------------------------------------------------------------------


class LogPane(TabPane):
    """A day's log: its lines, and the history of the selected line."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("p", "step(-1)", "Day before"),
        ("n", "step(1)", "Day after"),
        ("g", "reload", "Read again"),
    ]

    def __init__(self, memory: MemTier, agent: str | None) -> None:
        super().__init__("Log", id="log")
        self._memory = memory
        self._agent = agent
        self._days: list[str] = []
        self._day = ""
        self._lines: list[LogLine] = []
        self._soon = Timer(self, _REST)

    def compose(self) -> ComposeResult:
        """Lay out the day and the line."""
        yield Label("", id="day", classes="title", markup=False)
        with Horizontal():
            table: DataTable[Text] = DataTable(id="lines", cursor_type="row")
            table.add_columns("time", "who", "what")
            yield table
            with VerticalScroll(classes="detail"):
                yield Static("", id="line", markup=False)

    def load(self, day: str | None = None) -> None:
        """Read a day, or the newest one."""
        self._memory.store.catch_up_all()
        with self._memory.store.session() as reader:
            self._days = list_days(reader.session_spans(self._agent))
        self._day = day or (self._days[-1] if self._days else "")
        lines = read_log_lines(self._memory, agent=self._agent, date=self._day)
        self._lines = list(lines) if self._day else []
        table = self.query_one("#lines", DataTable)
        table.clear()
        for line in self._lines:
            table.add_row(*line_cells(line))
        summary = summarise(self._lines)
        hours = f"  00 {sparkline(summary.hours, 0)} 24" if summary.entries else ""
        counts = f"{summary.entries} entries, {summary.recalls} recalls, {summary.credits} credits"
        label = f"{self._day}  {counts}{hours}" if self._day else "Nothing was said yet."
        self.query_one("#day", Label).update(label)

    def action_reload(self) -> None:
        """Read the day again, as other processes write."""
        self.load(self._day or None)

    def action_step(self, step: int) -> None:
        """Go to the next or the previous day on which something was said."""
        days = [day for day in self._days if (day < self._day if step < 0 else day > self._day)]
        if days:
            self.load(days[-1] if step < 0 else days[0])

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        """Show the history of the selected line."""
        self._soon.stop()  # do not read lines that are only passed
        self._soon = self.set_timer(_REST, lambda: self._show(event.cursor_row))

    def _show(self, row: int) -> None:
        if row < len(self._lines):
            self.query_one("#line", Static).update(self._text_of(self._lines[row]))

    def _text_of(self, line: LogLine) -> Text:
        try:
            match line["kind"]:
                case "entry":
                    return history_text(read_line_history(self._memory, line["id"]))
                case "recall":
                    return recall_text(read_recall(self._memory, line["id"]))
                case "credit":
                    return history_text(read_line_history(self._memory, line["item"]))
        except (MemTierError, KeyError) as error:
            return plain(error)
        return plain(line["text"])


# -- texts ---------------------------------------------------------------------------------------


def plain(value: object, style: str = "") -> Text:
    """Return a text with control characters escaped, which is not read as markup."""
    return Text(escape_controls(value), style=style)


def titled(*rows: tuple[str, object]) -> Text:
    """Return names and values, one pair a row."""
    text = Text()
    for name, value in rows:
        text.append(f"{name:<9}", style="dim").append_text(plain(value)).append("\n")
    return text


def item_text(item: ReviewItem) -> Text:
    """Return an item in full: its words, why it waits, what it would replace, and its sources."""
    text = plain(item.text, "bold").append("\n")
    text.append_text(plain(f"{item.id[-SHORT_ID_CHARS:]}  {item.kind}\n", "dim"))
    if item.why:
        text.append_text(plain(f"\n{item.why}\n", "yellow"))
    for other in item.against:
        text.append_text(plain(f"\nif accepted, replaces: {other.fact.text}\n"))
    lines = item.fact.lines if item.fact else (item.line,) if item.line else ()
    for line in lines:
        entry, source = line.entry, line.source
        text.append_text(plain(f"\n{source.agent}/{source.session}\n", "dim"))
        who = (entry.speaker or entry.role) if entry else ""
        text.append_text(plain(f"{who}: {entry.content}\n" if entry else f"{_HIDDEN}\n"))
    return text


def line_cells(line: LogLine) -> tuple[Text, Text, Text]:
    """Return the cells of a line of the log: when, who and what."""
    if line["kind"] != "entry":
        return plain(line["timestamp"][11:16], "dim"), Text(""), plain(f"↳ {line['text']}", "dim")
    who = line["speaker"] or line["sender"] or line["role"]
    words = " ".join(line["content"].split())
    style = "cyan" if line["role"] == "user" else ""
    return plain(line["observed_at"][11:16], "dim"), plain(who[:14], style), plain(words[:300])


def history_text(history: LineHistory) -> Text:
    """Return the history of a line: its words, its weight over time, its credits and recalls."""
    curve = f"  {signed_sparkline(history.curve)}" if len(history.curve) > 1 else ""
    text = plain(history.text or _HIDDEN).append("\n\n")
    text += titled(
        ("id", history.id),
        ("from", f"{history.file}:{history.line}"),
        ("state", f"{history.state}, {history.tier}"),
        ("weight", f"{history.weight:+.4f}{curve}"),
    )
    for credit in history.credits[-_SHOWN:]:
        row = f"\n{credit.at[:16]}  {credit.delta:+.4f}  {credit.run or '-'}"
        text.append_text(plain(row, "" if credit.counts else "dim strike"))
    for recall in history.recalls[-_SHOWN:]:
        mark = "▸" if recall.injected else " "
        text.append_text(plain(f"\n{recall.at[:16]} {mark}{recall.rank:>3}  {recall.query}"))
    return text


def recall_text(recall: RecallView) -> Text:
    """Return why a recall chose its lines, what narrowly missed, and what the prompt got."""
    text = plain(recall.query, "bold").append("\n\n")
    text += titled(("made", f"{recall.label}, {recall.ms:.0f} ms"), *recall.depth)
    if recall.silence:
        text.append_text(plain(f"silent: {recall.silence}\n", "yellow"))
    for title, rows in (("injected", recall.injected), ("near misses", recall.near_misses)):
        if rows:
            text.append(f"\n{title}\n", style="bold")
        for row in rows:
            text.append_text(_row_text(row))
    if recall.block and recall.block["text"]:
        title = f"\nthe block, {recall.block['tokens']} tokens\n"
        text.append(title, style="bold").append_text(plain(recall.block["text"], "dim"))
    return text


def _row_text(row: RankedRow) -> Text:
    text = plain(f"{row.rank:>3} {row.score:.3f}  {row.text or _HIDDEN}\n")
    for each in row.bars:
        drawn = f"{bar(each.share, _BAR):<{_BAR}}"
        text.append_text(plain(f"    {drawn} {each.name} {each.added:+.3f}\n", "dim"))
    return text
