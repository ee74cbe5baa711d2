"""The cuts that somebody is told, one after the other: none is older than what was told before."""

from api.cut import Freshness


class Cuts:
    """The batches that somebody was told, of one dataflow."""

    def __init__(self) -> None:
        self.last: dict[Freshness, int] = dict.fromkeys(Freshness, 0)
        """The one that each freshness has told last."""

    def follow(self, freshness: Freshness, batch: int, said: object) -> None:
        """Take the next one: it is as new as those that staler ones have told, and its own."""
        for staler in list(Freshness)[: list(Freshness).index(freshness) + 1]:
            assert batch >= self.last[staler], (staler, self.last, said)
        self.last[freshness] = batch
