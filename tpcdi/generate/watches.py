"""WatchHistory.txt: what customers watch, and when they stop."""

import numpy as np
import pyarrow as pa

from tpcdi.generate.columns import Ints, Table, moments, pick, picked
from tpcdi.generate.listing import Listing

CANCELED_SHARE = 0.253
SOON_SHARE = 0.1
"""Of those that end, so many do within hours."""

AGAIN_SHARE = 0.03
"""So many are of a security that the customer has watched before, and may watch still."""

ACTIONS = pa.array(["ACTV", "CNCL"])


def watches(rng: np.random.Generator, times: Ints, customers: Ints, listing: Listing) -> Table:
    """Place a watch at each time, and say when it ends; `customers` tells since when each is."""
    count = len(times)
    who = pick(rng, np.searchsorted(customers, times, "right"))
    what = pick(rng, listing.issued_by(times))
    again = np.flatnonzero(rng.random(count) < AGAIN_SHARE)
    again = again[again > 0]
    before = pick(rng, again)
    who[again], what[again] = who[before], what[before]
    ends = np.flatnonzero(rng.random(count) < CANCELED_SHARE)
    hours = np.where(
        rng.random(len(ends)) < SOON_SHARE,
        rng.integers(60, 28_800, len(ends)),
        rng.integers(86_400, 60 * 86_400, len(ends)),
    )
    row = np.concatenate([np.arange(count), ends])
    return pa.table(
        {
            "W_C_ID": who[row],
            "W_S_SYMB": picked(listing.symbols, what[row]),
            "W_DTS": moments(np.concatenate([times, times[ends] + hours])),
            "W_ACTION": picked(ACTIONS, (np.arange(len(row)) >= count).astype(np.int8)),
        }
    )
