"""Whatever bytes come, each entry has one outcome, its bytes are kept, and nothing hangs."""

from pathlib import Path

import fuzzing
import pytest
from pyspark.sql import SparkSession
from vectoring import VECTORS

MUTANTS = 1_500


@pytest.mark.slow
@pytest.mark.parametrize("path", VECTORS, ids=lambda path: path.stem)
def test_every_input_has_one_outcome(spark: SparkSession, path: Path) -> None:
    tuples = fuzzing.fuzz(spark, path, number=1, mutants=MUTANTS)
    assert tuples or path.stem in ("punctuation", "complete"), "mutants that are still tuples"
