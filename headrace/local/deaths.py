"""How often a part may die: the rule that restarts it later each time, and at last gives it up."""

from dataclasses import dataclass

HEALTHY_S = 60.0
DELAY_FIRST_S = 0.25
DELAY_MAX_S = 10.0


@dataclass(slots=True)
class Deaths:
    """The deaths of one part in a row, without a minute of health between."""

    limit: int
    in_a_row: int = 0

    def next_delay_s(self, healthy_s: float) -> float | None:
        """Count a death after so long a time of health; give the wait before a restart, or None."""
        if healthy_s >= HEALTHY_S:
            self.in_a_row = 0
        self.in_a_row += 1
        if self.in_a_row >= self.limit:
            return None
        return min(DELAY_FIRST_S * 2.0 ** (self.in_a_row - 1), DELAY_MAX_S)
