"""A line that says what a long command is doing. It is updated on a terminal, else repeated."""

import threading
from time import monotonic
from types import TracebackType
from typing import Self, final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner

from fedldp.cli.plans import console

EVERY = 5.0  # seconds between two lines, without a terminal


@final
class Status:
    """Shows on standard error what is happening, even while this thread is busy.

    On a terminal there is one line with a clock, and below it what `show` was given. Elsewhere each
    `stage` prints a line; if nothing new happens, the last line is repeated.
    """

    def __init__(self, screen: Console | None = None, every: float = EVERY) -> None:
        self._screen = console(stderr=True) if screen is None else screen
        self._every, self._began, self._said = every, monotonic(), monotonic()
        self._text, self._spinner = "", Spinner("dots")
        self._below: RenderableType | None = None
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._live = Live(
            get_renderable=self._render, console=self._screen, transient=True, refresh_per_second=8
        )
        self._thread = threading.Thread(target=self._repeat, daemon=True)

    def __enter__(self) -> Self:
        if self._screen.is_terminal:
            self._live.start()
        else:
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended.set()
        if self._screen.is_terminal:
            self._live.stop()
        else:
            self._thread.join()

    @property
    def text(self) -> str:
        """The current text."""
        return self._text

    def stage(self, text: str) -> None:
        """Set the text, and print it if there is no terminal."""
        self.update(text)
        if not self._screen.is_terminal:
            self._print()

    def update(self, text: str) -> None:
        """Set the text. Without a terminal, it is printed with the next repetition."""
        with self._lock:
            self._text = text

    def show(self, below: RenderableType | None) -> None:
        """Show something below the line, on a terminal."""
        self._below = below

    def note(self, text: str) -> None:
        """Print a line that stays."""
        self._screen.print(text, soft_wrap=True)

    def _clock(self) -> str:
        return f"{monotonic() - self._began:3.0f} s"

    def _render(self) -> RenderableType:
        self._spinner.update(text=f"{self._clock()}  {self._text}")
        return self._spinner if self._below is None else Group(self._spinner, self._below)

    def _print(self) -> None:
        with self._lock:
            self._said = monotonic()
            self._screen.print(f"{self._clock()}  {self._text}", soft_wrap=True)

    def _repeat(self) -> None:
        while not self._ended.wait(self._every / 10):
            if self._text and monotonic() - self._said >= self._every:
                self._print()
