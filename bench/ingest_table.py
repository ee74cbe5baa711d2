"""What people write today and ours, from the figures that a run has saved, as a Markdown table.

python -m bench ingest --save && python -m bench.ingest_table
"""

import json
from typing import Any

from bench.__main__ import RESULTS

NAMES = {
    "headrace": "Headrace",
    "spark_jdbc": "Spark `foreachBatch`, JDBC writer",
    "psycopg_each_poll": "kafka-python and psycopg, a commit a poll",
    "psycopg_each_message": "kafka-python and psycopg, a commit a message",
}


def table(report: dict[str, Any]) -> str:
    """Write a line for each."""
    lines = [
        "| Kafka to PostgreSQL by | rows/s | rows lost at a SIGKILL | rows doubled |",
        "|---|--:|--:|--:|",
    ]
    for name, words in NAMES.items():
        of = report["peers"][name]
        cells = (of[key] for key in ("rows_per_s", "rows_lost", "rows_doubled"))
        lines.append(f"| {words} | " + " | ".join(f"{cell:,.0f}" for cell in cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(json.loads((RESULTS / "ingest.json").read_text(encoding="utf-8"))))
