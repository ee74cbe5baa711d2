"""How much there is of everything: rows for a scale of 1, as the real generator's files have them.

A small scale keeps a few of each, so that every odd case is there; from 0.1 on the floors of the
historical batch no longer show.
"""

from datetime import UTC, date, datetime
from typing import NamedTuple

from headrace.errors import ConfigError

SCALE_LEAST = 0.01


class Law(NamedTuple):
    """A number that grows with the scale."""

    per_scale: float
    least: int

    def __call__(self, scale: float) -> int:
        """Tell the number at a scale."""
        return max(round(self.per_scale * scale), self.least)


EMPLOYEES = Law(5_000, 50)
ACTIONS = {
    "NEW": Law(1_576, 40),
    "ADDACCT": Law(1_426.67, 12),
    "UPDACCT": Law(856, 14),
    "CLOSEACCT": Law(428, 6),
    "UPDCUST": Law(428, 18),
    "INACT": Law(142.67, 5),
}
PROSPECTS = Law(4_994, 50)
COMPANIES = Law(325.3, 6)
COMPANY_CHANGES = Law(174.7, 8)
SECURITIES = Law(596, 8)
SECURITY_CHANGES = Law(204, 4)
TRADES = Law(130_326, 1_000)
WATCHES = Law(240_237, 2_000)

TRADES_A_DAY = Law(71.4, 12)
WATCHES_A_DAY = Law(652, 10)
CUSTOMERS_A_DAY = Law(5, 4)
ACCOUNTS_A_DAY = Law(10, 7)
PROSPECTS_NEW_A_DAY = Law(6, 3)
PROSPECTS_CHANGED_A_DAY = Law(8, 4)

BYTES_PER_SCALE = 110e6

DAY_S = 86_400


def seconds(day: date) -> int:
    """Tell when a day begins."""
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp())


BATCH_1 = date(2017, 7, 7)
"""The day of the historical batch; each increment is one day later."""

FIRST_FILING = seconds(date(1967, 1, 1))
FIRST_ACTION = seconds(date(2007, 7, 7))
FIRST_TRADE = seconds(date(2012, 7, 7))
FIRST_QUOTE = seconds(date(2015, 7, 6))
HISTORY_END = seconds(BATCH_1) + DAY_S
"""When the first increment's day begins."""


def checked(scale: float) -> float:
    """Refuse a scale that is too small or no number."""
    if not SCALE_LEAST <= scale < float("inf"):
        raise ConfigError(
            f"there is no scale {scale:g}",
            hint=f"Choose one from {SCALE_LEAST} on: 1 is about 1.6 million rows and 0.1 GB.",
        )
    return scale
