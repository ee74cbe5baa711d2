"""Runs commands of `airflow` one after the other: a program for airflows.py, in Airflow's Python.

Reads each as a line of JSON, its arguments; answers by a line: whether it succeeded.
"""

import json
import os
import sys
import traceback


def succeeds(arguments: list[str]) -> bool:
    """Run `airflow` with these arguments."""
    from airflow.cli import cli_parser

    parsed = cli_parser.get_parser().parse_args(arguments)
    try:
        parsed.func(parsed)
    except SystemExit as end:
        return not end.code
    except Exception:  # noqa: BLE001 - the next command is not to blame
        traceback.print_exc()
        return False
    return True


def main() -> None:
    out = os.dup(1)
    os.dup2(2, 1)  # Airflow logs to where the answers are to be
    for line in sys.stdin:
        os.write(out, json.dumps(succeeds(json.loads(line))).encode() + b"\n")


if __name__ == "__main__":
    main()
