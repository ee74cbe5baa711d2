"""The crowd: the streams that bring tuples at the same time, and how long each rests between two
readings.

A micro-batch costs Spark the same for ten tuples as for a thousand. Where several streams bring a
few at a time, reading each at every trigger takes all cores, and what comes waits for longer than
if more were read less often. So they rest, until they take half of the cores.
"""

from collections.abc import Callable

from headrace.clock import Clock

RECENT_S = 1.0
SHORT_S = 0.5
"""What takes longer to read is long for its tuples, and not for what each micro-batch costs."""


class Crowd:
    """The streams that so many cores read: of a cluster, as many as there are by then."""

    def __init__(self, cores: Callable[[], int], clock: Clock) -> None:
        self._cores = cores
        self._clock = clock
        self._read: dict[str, float] = {}
        """When each topic was read last."""

    def rest_s(self, topic: str, took_s: float) -> float:
        """Take note that a topic was read; tell how long that is to rest.

        Each of many takes so long because they are many: resting for the same time, they take half
        of the cores. A few take less than that, and do not rest.
        """
        now = self._clock.monotonic()
        self._read[topic] = now
        readers = sum(now - at <= RECENT_S for at in list(self._read.values()))
        if readers < 2 or took_s >= SHORT_S:
            return 0.0
        return took_s * min(max(2 * readers / self._cores() - 1, 0), 1)
