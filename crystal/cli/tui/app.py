"""Show the memory in the terminal: a search field, a list, and the open conversation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from types import ModuleType
from typing import TYPE_CHECKING, ClassVar, TypeVar

from rich.console import Group
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.widgets import Collapsible, Footer, Input, OptionList, Static
from textual.widgets.option_list import Option

from crystal.app.context import Machine
from crystal.errors import CrystalError

if TYPE_CHECKING:
    from crystal.cli.tui.reading import ConversationPage, EntryList, ListEntry, TurnBlock

Result = TypeVar("Result")
PAUSE_SECONDS = 0.12
"""Seconds after the last key before a search starts."""
WIDE = 100
"""Minimum number of columns at which the list and the conversation are shown side by side."""
MAX_FOLDED = 90
OTHER_KEYS = "Esc back · Enter open · t days · n next · p previous · N last · P first page"


class FoldedTurn(Collapsible):
    """Input or output of a tool."""

    def scroll_visible(self, *_: object, **__: object) -> None:
        """Do not scroll: the reader sees the title, and unfolding all would otherwise show the last turn."""


class MemoryBrowser(App[None]):
    """Shows the memory.

    Args:
        machine: The memory; used only in the executor's thread.
        executor: Runs one call at a time.
        query: The first search; if empty, the sessions are listed.
    """

    TITLE = "crystal"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Input { border: none; height: 1; padding: 0 1; background: $boost; }
    #title { height: auto; max-height: 3; padding: 0 1; color: $text-muted; }
    .reading #title { text-wrap: nowrap; text-overflow: ellipsis; }
    #conversation > Static { margin: 1 0; }
    OptionList { border: none; padding: 0; width: 2fr; text-wrap: nowrap; text-overflow: ellipsis; }
    OptionList > .option-list--option-disabled { color: $text; }
    OptionList, #conversation { scrollbar-size-vertical: 1; }
    CollapsibleTitle { text-wrap: nowrap; text-overflow: ellipsis; width: 100%; padding: 0; }
    Collapsible > Contents { padding: 0 0 0 2; }
    #conversation { width: 3fr; padding: 0 1; border-left: solid $panel; }
    .focus { border-left: thick $accent; padding-left: 1; }
    Collapsible { border: none; padding: 0; margin: 0; background: transparent; }
    .narrow OptionList { width: 1fr; }
    .narrow #conversation { display: none; border: none; }
    .narrow.reading OptionList { display: none; }
    .narrow.reading #conversation { display: block; width: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "ask", "Search"),
        Binding("s", "sessions", "Sessions"),
        Binding("t", "days", "Days", show=False),
        Binding("m", "memories", "Memories"),
        Binding("a", "history", "About"),
        Binding("b", "lines", "Blame"),
        Binding("f", "cures", "Fix"),
        Binding("x", "fold", "Fold"),
        Binding("n", "page(1)", "Next", show=False),
        Binding("p", "page(-1)", "Previous", show=False),
        Binding("N", "first_or_last(True)", "Last", show=False),
        Binding("P", "first_or_last(False)", "First", show=False),
        Binding("escape", "return", "Back", show=False),
        Binding("question_mark", "keys", "Keys", key_display="?"),
        Binding("q", "quit", "Quit"),
    ]

    def __init__(self, machine: Machine, executor: Executor, query: str = "") -> None:
        super().__init__()
        self._machine, self._executor, self._query = machine, executor, query
        self._entries: list[ListEntry] = []
        self._title = ""
        self._before: list[tuple[list[ListEntry], str, ConversationPage | None]] = []
        self._page: ConversationPage | None = None
        self._is_unfolded = False

    def compose(self) -> ComposeResult:
        """Lay out the search field, the list and the conversation."""
        yield Input(self._query, placeholder="Search everything that was said", id="query")
        yield Static("", id="title")
        with Horizontal():
            yield OptionList(id="list")
            yield VerticalScroll(id="conversation")
        yield Footer(compact=True)

    def on_mount(self) -> None:
        """Search, or list the sessions."""
        if not self._query:
            self.action_sessions()

    def on_resize(self) -> None:
        """Show the list and the conversation alternately if there is no room for both."""
        self.screen.set_class(self.size.width < WIDE, "narrow")

    # ------------------------------------------------------------------------------------------------------ the list

    def on_input_changed(self, event: Input.Changed) -> None:
        """Search when nothing was typed for a moment."""
        self._leave_conversation()
        self._before.clear()
        self.run_worker(self._search(event.value.strip()), group="list", exclusive=True)

    def on_input_submitted(self, _: Input.Submitted) -> None:
        """Move the focus to the list."""
        self.query_one(OptionList).focus()

    async def _search(self, query: str) -> None:
        await asyncio.sleep(PAUSE_SECONDS)
        if query:
            await self._list(lambda machine: _reading().find(machine, query))
        else:
            await self._list(lambda machine: _reading().list_sessions(machine))

    async def _list(self, ask: Callable[[Machine], EntryList]) -> None:
        """Show a list; an error is shown in the title."""
        found = await self._read(ask)
        if found is not None:
            self._fill(list(found.entries), f"{found.title}: {found.note}" if found.note else found.title)

    def _fill(self, entries: list[ListEntry], title: str) -> None:
        self._entries, self._title = entries, title
        options = self.query_one(OptionList)
        options.clear_options()
        options.add_options(Option(_row(one), disabled=one.target is None) for one in entries)
        self._say(title)
        if any(one.target for one in entries):
            options.action_first()

    async def _read(self, ask: Callable[[Machine], Result]) -> Result | None:
        """Query the memory in its thread; show an error and return None if it fails."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, ask, self._machine)
        except CrystalError as error:
            self._say(f"{error.message}; {error.hint}" if error.hint else error.message)
            return None

    def _say(self, words: str) -> None:
        self.query_one("#title", Static).update(Content(words))

    def _leave_conversation(self) -> None:
        """Show the list and its title again if there is no room for both."""
        self.screen.remove_class("reading")
        self._say(self._title)

    def _show_list(self, ask: Callable[[Machine], EntryList]) -> None:
        self._before.clear()
        self._to_list()
        self.run_worker(self._list(ask), group="list", exclusive=True)

    def _jump(self, ask: Callable[[Machine], EntryList]) -> None:
        """List something about what is shown; ``action_return`` goes back to it."""
        page = self._page if self.query_one("#conversation").has_focus_within else None
        before = [*self._before, (self._entries, self._title, page)]
        self._show_list(ask)
        self._before = before

    # ---------------------------------------------------------------------------------------------- the conversation

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Open the selected entry."""
        target = self._entries[event.option_index].target
        if target is not None:
            self.run_worker(self._open(target), group="conversation", exclusive=True)

    async def _open(self, target: str, start: int | None = None) -> None:
        page = await self._read(lambda machine: _reading().open_page(machine, target, start))
        if page is None:
            return
        self._page, self._is_unfolded = page, False
        pane = self.query_one("#conversation", VerticalScroll)
        await pane.remove_children()
        await pane.mount_all(map(_widget, page.blocks))
        self.screen.add_class("reading")
        pane.focus()
        focus = next((one for one, block in zip(pane.children, page.blocks, strict=True) if block.is_focus), None)
        if focus is None:
            pane.scroll_home(animate=False)
        else:  # its position is known only after the layout
            self.call_after_refresh(pane.scroll_to_widget, focus, animate=False, top=True)
        last = page.start + len(page.blocks)
        of = f"turns {page.start + 1} to {last} of {page.total}" if page.total > 1 else ""
        after, before = "n: next" if last < page.total else "", "p: previous" if page.start else ""
        self._say(" · ".join(filter(None, (of, after, before, page.title))))

    def _current_turn(self) -> TurnBlock | None:
        """Return the requested turn, else the first visible one; None if no conversation is open."""
        if self._page is None:
            return None
        pane = self.query_one("#conversation", VerticalScroll)
        seen = [
            block
            for one, block in zip(pane.children, self._page.blocks, strict=False)
            if one.has_focus_within or one.virtual_region.bottom > pane.scroll_y
        ]
        return next((one for one in seen if one.is_focus), seen[0] if seen else None)

    def _nearest(self, name: str) -> str | None:
        """Return the file or error (``name``) of the visible turn, or of the nearest one after it."""
        at = self._current_turn()
        blocks = list(self._page.blocks) if self._page else []
        after = blocks[blocks.index(at) :] if at in blocks else []
        return next((value for one in (*after, *blocks) if (value := getattr(one, name))), None)

    # ------------------------------------------------------------------------------------------------------ the keys

    def action_ask(self) -> None:
        """Move the focus to the search field, and show the list below it."""
        self._leave_conversation()
        self.query_one(Input).focus()

    def action_sessions(self) -> None:
        """List the sessions."""
        self._show_list(lambda machine: _reading().list_sessions(machine))

    def action_days(self) -> None:
        """List the sessions by day."""
        self._show_list(lambda machine: _reading().list_sessions(machine, by_day=True))

    def action_memories(self) -> None:
        """List the memories."""
        self._show_list(lambda machine: _reading().memories(machine))

    def action_history(self) -> None:
        """List the history of the visible file, or of the search text."""
        is_read = self.query_one("#conversation").has_focus_within
        thing = (self._nearest("name") if is_read else None) or self.query_one(Input).value
        if thing.strip():
            self._jump(lambda machine: _reading().history(machine, thing))
        else:
            self._say("nothing to look up: type a name, or open a conversation that edits a file")

    def action_lines(self) -> None:
        """List who wrote the lines of the visible file."""
        file, name = self._nearest("file"), self._nearest("name")
        if file and name:
            self._jump(lambda machine: _reading().lines_of(machine, file, name))
        else:
            self._say("no file is edited here: open a conversation that edits one")

    def action_cures(self) -> None:
        """List the cures of the visible error."""
        error = self._nearest("error")
        if error:
            self._jump(lambda machine: _reading().cures(machine, error))
        else:
            self._say("nothing failed here: open a conversation in which a command failed")

    def action_fold(self) -> None:
        """Fold or unfold all inputs and outputs of tools."""
        self._is_unfolded = not self._is_unfolded
        pane = self.query_one("#conversation", VerticalScroll)
        top = next((one for one in pane.children if one.virtual_region.bottom > pane.scroll_y), None)
        for one in self.query(Collapsible):
            one.collapsed = not self._is_unfolded
        if top is not None:
            self.call_after_refresh(pane.scroll_to_widget, top, animate=False, top=True)

    def action_page(self, step: int) -> None:
        """Show the next or the previous page of the conversation."""
        page = self._page
        if page is not None:
            start = page.start + step * _reading().PER_PAGE
            if 0 <= start < page.total or (step < 0 < page.start):
                self._turn_to(page, start)

    def action_first_or_last(self, is_last: bool) -> None:
        """Show the first or the last page of the conversation."""
        page = self._page
        if page is not None:
            self._turn_to(page, page.total - _reading().PER_PAGE if is_last else 0)

    def _turn_to(self, page: ConversationPage, start: int) -> None:
        self.run_worker(self._open(page.target, max(0, start)), group="conversation", exclusive=True)

    def action_keys(self) -> None:
        """Say the keys for which the last line has no room."""
        self._say(OTHER_KEYS)

    def action_return(self) -> None:
        """Go back to the list; from a list about something, to that."""
        if not (self._before and self.query_one(OptionList).has_focus):
            self._to_list()
            return
        entries, title, page = self._before.pop()
        self._fill(entries, title)
        if page is not None:
            self._turn_to(page, page.start)

    def _to_list(self) -> None:
        self._leave_conversation()
        self.query_one(OptionList).focus()


def _reading() -> ModuleType:
    """Import the module that reads the memory, in the memory's thread, so that the first screen appears sooner."""
    from crystal.cli.tui import reading

    return reading


def _row(entry: ListEntry) -> Content:
    if entry.target is None:
        return Content(entry.text).stylize("bold")
    return Content.assemble(entry.text, "\n", (entry.facts, "dim"))


def _widget(block: TurnBlock) -> Static | Collapsible:
    """Return the widget of a turn; its text is never interpreted as markup."""
    from rich.markdown import Markdown  # takes 60 ms, which would delay the first screen

    kind = "focus" if block.is_focus else ""
    if not block.is_folded:
        if block.is_markdown:
            return Static(Group(Text(block.head, "bold"), Markdown(block.body, hyperlinks=False)), classes=kind)
        return Static(Content.assemble((block.head, "bold"), "\n", block.body), classes=kind)
    first = block.body.partition("\n")[0][:MAX_FOLDED]
    title = f"{block.head}  {first}".replace("[", "\\[")
    return FoldedTurn(Static(Content(block.body)), title=title, collapsed=not block.is_focus, classes=kind)
