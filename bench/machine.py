"""The machine that figures were measured on: what one must know to compare them, and no names."""

import os
import platform
import sqlite3
import time
from pathlib import Path

PAGE = bytes(4096)
FSYNC_FOR_S = 0.5

Machine = dict[str, str | int | float]


def machine(folder: Path) -> Machine:
    """Describe this machine, and measure how often a second `folder`'s disk can be synced."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        "cpu": _cpu(),
        "memory_mb": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20,
        "load_1m": round(os.getloadavg()[0], 2),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "fsync_per_s": round(fsync_per_s(folder)),
    }


def fsync_per_s(folder: Path) -> float:
    """Append a page and sync it, again and again."""
    file = folder / "fsync"
    descriptor = os.open(file, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    try:
        done, start = 0, time.perf_counter()
        while (elapsed := time.perf_counter() - start) < FSYNC_FOR_S:
            os.write(descriptor, PAGE)
            os.fsync(descriptor)
            done += 1
    finally:
        os.close(descriptor)
        file.unlink()
    return done / elapsed


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown"
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
