"""The memory and the processors that the parts of a stack use, each with all of its processes.

They are looked at four times a second, because processes come and go. A process tells what it has
ever had (VmHWM), and a part has at a look what its living ones tell, together. Where processes of a
part share pages, these are counted once, as of that look: PostgreSQL's have memory that they share
on purpose, beside what is their own; of Spark's Python, which are forked, each has its share of
what several have. A process has used the CPU seconds that it tells, and those of its children that
have ended.
"""

import os
import re
import threading
import time
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

POSTGRES, PYTHON = "postgres", "python"
SPARK_PYTHON = "spark_python"
LOOK_EVERY_S = 0.25
KB_PER_MB = 1024
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
HELD = {POSTGRES: ("status", "RssAnon"), SPARK_PYTHON: ("smaps_rollup", "Pss")}
"""Where, and by which name, processes that share pages tell what they have."""
TICKS = slice(11, 15)
"""Where `stat`, behind the name, has what a process and its ended children have used."""


class Look(NamedTuple):
    """What was seen at once: from when to when, and the CPU seconds of each part so far."""

    began: float
    ended: float
    cpu_s: Mapping[str, float]


class Usage:
    """What was seen of several parts."""

    def __init__(self, roots: Mapping[str, int]) -> None:
        self._roots = roots
        self._peaks: dict[str, float] = {}
        self._looks: list[Look] = []
        self._over = threading.Event()

    @contextmanager
    def watched(self) -> Iterator["Usage"]:
        """Look until the block ends, and then once more."""
        self.look()
        thread = threading.Thread(target=self._run, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._over.set()
            thread.join()
            self.look()

    def peaks_mb(self) -> dict[str, float]:
        """Tell the peak of each part."""
        return dict(self._peaks)

    def cpu_s(self, began: float, ended: float) -> dict[str, float]:
        """Tell the CPU seconds of each part between two moments of the performance counter.

        They are those between the last look before and the first after: not less.
        """
        before = bisect_right(self._looks, began, key=lambda look: look.ended)
        after = bisect_left(self._looks, ended, key=lambda look: look.began)
        first = self._looks[max(before - 1, 0)].cpu_s
        last = self._looks[min(after, len(self._looks) - 1)].cpu_s
        return {part: seconds - first.get(part, 0.0) for part, seconds in last.items()}

    def _run(self) -> None:
        while not self._over.wait(LOOK_EVERY_S):
            self.look()

    def look(self) -> None:
        """Look at all processes once."""
        began = time.perf_counter()
        children = _children()
        now: dict[str, float] = defaultdict(float)
        cpu_s: dict[str, float] = defaultdict(float)
        shared = 0.0
        for part, root in self._roots.items():
            for pid, program, is_of_java in _tree(root, children):
                if is_of_java and not program.startswith(PYTHON):
                    continue  # its memory is Java's, until it is another program
                name = _name(part, program, is_root=pid == root, is_of_java=is_of_java)
                now[name] += _mb(pid, *HELD.get(name, ("status", "VmHWM")))
                if name == POSTGRES:
                    shared = max(shared, _mb(pid, "status", "RssShmem"))
                cpu_s[name] += _cpu_s(pid)
        if shared:
            now[POSTGRES] += shared
        for name, mb in now.items():
            self._peaks[name] = max(self._peaks.get(name, 0.0), mb)
        self._looks.append(Look(began, time.perf_counter(), cpu_s))


def own_peak_mb() -> float:
    """Tell the most memory that this process has had; what it was forked from is no part of it."""
    return peak_mb(os.getpid())


def peak_mb(pid: int) -> float:
    """Tell the most memory that a process has had."""
    return _mb(pid, "status", "VmHWM")


def below(pid: int) -> list[int]:
    """Name the processes that a process has started, and those that these have started."""
    return [number for number, *_ in _tree(pid, _children()) if number != pid]


def _mb(pid: int, file: str, name: str) -> float:
    """Give a field that is in kB; nothing of a process that is gone."""
    found = re.search(rf"^{name}:\s+(\d+) kB$", _read(pid, file), re.MULTILINE)
    return int(found[1]) / KB_PER_MB if found else 0.0


def _name(part: str, program: str, *, is_root: bool, is_of_java: bool) -> str:
    if program == POSTGRES:
        return POSTGRES
    if part != "engine" or is_root:
        return part
    if program == "java":
        return "spark"
    return SPARK_PYTHON if is_of_java else "core"


def _children() -> dict[int, list[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (status := _status(int(entry.name))):
            found[int(status["PPid"])].append(int(entry.name))
    return found


def _tree(
    root: int, children: Mapping[int, list[int]], *, is_of_java: bool = False
) -> Iterator[tuple[int, str, bool]]:
    """Give a process and all below it: its program, and whether a JVM started it."""
    program = _status(root).get("Name", "")
    yield root, program, is_of_java
    for child in children.get(root, ()):
        yield from _tree(child, children, is_of_java=is_of_java or program == "java")


def _status(pid: int) -> dict[str, str]:
    """Read what a process tells; nothing of one that is gone, or has no memory any more."""
    text = _read(pid, "status")
    fields = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
    return fields if "VmHWM" in fields else {}


def _cpu_s(pid: int) -> float:
    return sum(map(int, _read(pid, "stat").rpartition(")")[2].split()[TICKS])) / TICKS_PER_S


def _read(pid: int, file: str) -> str:
    try:
        return Path(f"/proc/{pid}/{file}").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
