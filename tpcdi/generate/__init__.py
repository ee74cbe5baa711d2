"""The generator: every source file of TPC-DI, at any scale, the same for the same seed."""

from tpcdi.generate.directory import Report, generate
from tpcdi.generate.increments import Increment, increment
from tpcdi.generate.state import State

__all__ = ["Increment", "Report", "State", "generate", "increment"]
