"""Chance, by a seed and a name: what one part draws does not depend on what another has drawn."""

import random
import zlib

import numpy as np


def dice(seed: int, *name: object) -> random.Random:
    """Throw dice for rows that are made one by one."""
    return random.Random(f"{seed} {name}")  # noqa: S311 - to be the same again


def bulk(seed: int, *name: object) -> np.random.Generator:
    """Throw dice for whole columns."""
    return np.random.default_rng([seed, zlib.crc32(repr(name).encode())])
