"""The rules of the voter in plain Python, and votes to play by them.

Whatever engine counts the votes must end in the state that this one ends in.
"""

from bisect import bisect
from collections import Counter, deque
from itertools import accumulate
from random import Random

CONTESTANTS = 100
VOTES_A_REMOVAL = 1_000
WINDOW = 100
PLACES = 3
SEED = 2026

FROM_A_KNOWN_PHONE, FOR_NOBODY = 0.05, 0.02
SKEW = 0.8
"""The weight of contestant n is n ** -SKEW: the first gets 9 % of the votes, the last 0.2 %."""

Vote = tuple[int, int]
"""Phone and contestant."""

State = dict[str, list[tuple[object, ...]]]
"""Table -> its rows, sorted; the window's in their order."""


class Show:
    """The state that the votes so far have led to."""

    def __init__(self) -> None:
        self.counts = dict.fromkeys(range(1, CONTESTANTS + 1), 0)
        self.votes: dict[int, int] = {}
        self.total = 0
        self.rejected = 0
        self._recent: deque[Vote] = deque(maxlen=WINDOW)
        self._leaders: list[tuple[object, ...]] | None = None

    def vote(self, phone: int, contestant: int) -> None:
        """Take one vote."""
        if contestant not in self.counts or phone in self.votes:
            self.rejected += 1
            return
        self.votes[phone] = contestant
        self.counts[contestant] += 1
        self.total += 1
        self._recent.append((phone, contestant))
        self._leaders = None
        if self.total % VOTES_A_REMOVAL == 0 and len(self.counts) > 1:
            self._remove(min(self.counts, key=lambda c: (self.counts[c], c)))

    def state(self) -> State:
        """Tell the content of every table."""
        return {
            "contestants": [(contestant,) for contestant in sorted(self.counts)],
            "votes": sorted(self.votes.items()),
            "counts": sorted(self.counts.items()),
            "totals": [(self.total,)],
            "leaders": sorted(self._ranked(), key=lambda row: row[:2]),
            "recent": list(self._recent),
            "trending": sorted(Counter(contestant for _, contestant in self._recent).items()),
        }

    def _remove(self, last: int) -> None:
        # The boards are as of the vote before; who is gone leaves them at once.
        self._leaders = [row for row in self._ranked() if row[2] != last]
        del self.counts[last]
        self.votes = {phone: c for phone, c in self.votes.items() if c != last}

    def _ranked(self) -> list[tuple[object, ...]]:
        if self._leaders is not None or not self.total:
            return self._leaders or []
        recent = Counter(c for _, c in self._recent if c in self.counts)
        boards = {
            "top": sorted(self.counts.items(), key=lambda row: (-row[1], row[0])),
            "bottom": sorted(self.counts.items(), key=lambda row: (row[1], row[0])),
            "trending": sorted(recent.items(), key=lambda row: (-row[1], row[0])),
        }
        return [
            (kind, place, *row)
            for kind, rows in boards.items()
            for place, row in enumerate(rows[:PLACES], 1)
        ]


def votes(count: int, seed: int = SEED) -> tuple[list[Vote], Show]:
    """Make votes, and tell where they lead: most for somebody who is still in the show."""
    random = Random(seed)  # noqa: S311 - no secret
    show = Show()
    made: list[Vote] = []
    living: list[int] = []
    weights: list[float] = []
    for _ in range(count):
        if len(living) != len(show.counts):
            living = list(show.counts)
            weights = list(accumulate(contestant**-SKEW for contestant in living))
        if random.random() < FOR_NOBODY:
            contestant = CONTESTANTS + random.randint(1, 10)
        else:
            contestant = living[bisect(weights, random.random() * weights[-1])]
        if made and random.random() < FROM_A_KNOWN_PHONE:
            phone = random.choice(made)[0]
        else:
            phone = random.randrange(2_000_000_000, 10_000_000_000)
        made.append((phone, contestant))
        show.vote(phone, contestant)
    return made, show
