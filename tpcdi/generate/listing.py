"""The securities that can be traded, in the order in which they were issued."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tpcdi.generate.columns import Ints, Table

SYMBOL_LENGTH = 15


@dataclass(frozen=True, slots=True)
class Listing:
    """Their symbols, when they were issued, and what each costs, more or less."""

    symbols: Table
    issued: Ints
    cents: Ints

    def issued_by(self, moments: Ints) -> Ints:
        """Count those that were there at each moment."""
        return np.searchsorted(self.issued, moments, "right")

    @property
    def table(self) -> Table:
        """Show them as a table, to be kept."""
        return pa.table({"symbol": self.symbols, "issued": self.issued, "cents": self.cents})

    @classmethod
    def of(cls, table: Table) -> "Listing":
        """Take them from a table."""
        symbols = table["symbol"].combine_chunks()
        return cls(symbols, table["issued"].to_numpy(), table["cents"].to_numpy())


def symbol(number: int) -> str:
    """Name a security: letters that count."""
    letters = ""
    while number:
        number, letter = divmod(number, 26)
        letters = chr(65 + letter) + letters
    return letters.rjust(SYMBOL_LENGTH, "A")
