"""Crash points: the places before and after a durable write where a test may end the process.

A point does nothing unless configured: `testing.crash_at = "push.commit.after:2"` kills the
process with SIGKILL when that point is reached for the second time.
"""

import os
import signal
from enum import Enum

from headrace.errors import ConfigError


class Point(Enum):
    """Every place where a crash would leave something half done, were it not for the protocol."""

    CORE_OPEN_BEFORE = "core.open.before"
    CORE_OPEN_AFTER = "core.open.after"
    CORE_COMMIT_BEFORE = "core.commit.before"
    CORE_COMMIT_AFTER = "core.commit.after"
    CORE_CALL_BEFORE = "core.call.before"
    CORE_CALL_AFTER = "core.call.after"
    CORE_LETTERS_BEFORE = "core.letters.before"
    CORE_LETTERS_AFTER = "core.letters.after"
    CORE_FORGET_BEFORE = "core.forget.before"
    CORE_FORGET_AFTER = "core.forget.after"
    CORE_PUBLISH_BEFORE = "core.publish.before"
    CORE_PUBLISH_AFTER = "core.publish.after"
    PUSH_COPY_AFTER = "push.copy.after"
    PUSH_COMMIT_BEFORE = "push.commit.before"
    PUSH_COMMIT_AFTER = "push.commit.after"
    PUSH_FORGET_AFTER = "push.forget.after"
    MERGE_TABLE_AFTER = "merge.table.after"
    MERGE_COMMIT_BEFORE = "merge.commit.before"
    MERGE_COMMIT_AFTER = "merge.commit.after"
    REBUILD_TABLE_AFTER = "rebuild.table.after"
    REBUILD_COMMIT_BEFORE = "rebuild.commit.before"
    REBUILD_COMMIT_AFTER = "rebuild.commit.after"
    API_RESULT_BEFORE = "api.result.before"
    API_RESULT_AFTER = "api.result.after"
    API_DELIVERED_BEFORE = "api.delivered.before"
    API_DELIVERED_AFTER = "api.delivered.after"


class CrashPoints:
    """Counts down to the one crash that was asked for, if any."""

    def __init__(self, crash_at: str = "") -> None:
        name, _, times = crash_at.partition(":")
        try:
            self._point = Point(name) if crash_at else None
            self._left = int(times or "1")
        except ValueError:
            raise ConfigError(
                f"testing.crash_at: {crash_at!r} is not a crash point",
                hint="Use POINT or POINT:TIMES, with one of: " + ", ".join(p.value for p in Point),
            ) from None

    def reached(self, point: Point) -> None:
        """Say that `point` was reached; does not return when it is the one to crash at."""
        if point is not self._point:
            return
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
