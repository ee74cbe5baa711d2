"""Progress of the collector: one line that is rewritten on a terminal, lines in a log elsewhere."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

from headrace.clock import Clock

if TYPE_CHECKING:
    from ingest.collector import Status

LOG_EVERY_S = 5.0
MB = 1e6


class Lines:
    """Tells how far the collector is, in lines."""

    def __init__(self, tell: Callable[[str], None], clock: Clock) -> None:
        self._tell = tell
        self._clock = clock
        self._began = self._told = clock.monotonic()

    def show(self, status: "Status") -> None:
        """Tell it, if it is time."""
        now = self._clock.monotonic()
        if now - self._told >= LOG_EVERY_S:
            self._told = now
            self._tell(line(status, now - self._began))


class Progress:
    """Shows how far the collector is."""

    def __init__(self, out: TextIO, clock: Clock) -> None:
        self._out = out
        self._clock = clock
        self._began = clock.monotonic()
        self._lines = Lines(self.say, clock)
        self._width = 0

    def show(self, status: "Status") -> None:
        """Show it, if it is time."""
        if self._out.isatty():
            self._rewrite(line(status, self._clock.monotonic() - self._began))
        else:
            self._lines.show(status)

    def say(self, text: str) -> None:
        """Print a line of its own."""
        self.clear()
        print(text, file=self._out, flush=True)

    def clear(self) -> None:
        """Take the line away that is rewritten."""
        if self._width:
            self._rewrite("")
            self._width = 0

    def _rewrite(self, text: str) -> None:
        print(f"\r{text.ljust(self._width)}", end="\r" if not text else "", file=self._out)
        self._out.flush()
        self._width = len(text)


def line(status: "Status", elapsed_s: float) -> str:
    """Say how far it is: files, tuples, size, rate, and the time left by the bytes on the disk."""
    elapsed_s = max(elapsed_s, 0.001)
    said = (
        f"{status.done} of {status.sources} files, {status.tuples:,} tuples, "
        f"{status.read / MB:,.1f} MB, {status.read / MB / elapsed_s:,.1f} MB/s"
    )
    left = status.size - status.skipped - status.taken
    if status.taken and left > 0:
        said += f", {_time(left * elapsed_s / status.taken)} left"
    return said


def _time(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}"
