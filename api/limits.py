"""Limits: how many requests a caller may make in a second, and at once."""

import math
from collections import Counter, OrderedDict
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from api.errors import TooManyRequests
from api.grant import Grant
from headrace.clock import Clock

BUCKETS_MAX = 10_000
"""Callers whose rate is remembered; 2 MB. Who is forgotten has not come for longest, and begins
with a full bucket, as it would have by then."""


class Limits:
    """A bucket of tokens for each caller, and the count of its requests that are not answered.

    A bucket holds what may be asked in one second, and fills at that rate. All of this runs in the
    one thread of the event loop.
    """

    def __init__(self, rate_per_s: int, at_once_max: int, clock: Clock) -> None:
        self._rate_per_s = rate_per_s
        self._at_once_max = at_once_max
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._inside: Counter[str] = Counter()

    def enter(self, grant: Grant) -> AbstractContextManager[None]:
        """Count a request in until the context is left; refuse it if it is one too many."""
        self._take(grant)
        if self._inside[grant.id] >= self._at_once_max:
            raise TooManyRequests(
                f"{self._at_once_max} requests of {grant.name} are being answered, as many as may",
                hint="Wait for one of them; api.at_once_max sets the limit.",
            )
        return self._counted(grant)

    @contextmanager
    def _counted(self, grant: Grant) -> Iterator[None]:
        self._inside[grant.id] += 1
        try:
            yield
        finally:
            self._inside[grant.id] -= 1
            if not self._inside[grant.id]:
                del self._inside[grant.id]

    def _take(self, grant: Grant) -> None:
        rate = self._rate_per_s if grant.rate_per_s is None else grant.rate_per_s
        if not rate:
            return
        now = self._clock.monotonic()
        tokens, at = self._buckets.pop(grant.id, (float(rate), now))
        tokens = min(float(rate), tokens + (now - at) * rate)
        self._buckets[grant.id] = (tokens - 1 if tokens >= 1 else tokens, now)
        if len(self._buckets) > BUCKETS_MAX:
            self._buckets.popitem(last=False)
        if tokens < 1:
            raise TooManyRequests(
                f"{grant.name} has made the {rate} requests that it may make in a second",
                hint="Ask again after Retry-After; api.rate_per_s sets the rate, and "
                "`headrace keys create --rate` that of one key.",
                after_s=math.ceil((1 - tokens) / rate),
            )
