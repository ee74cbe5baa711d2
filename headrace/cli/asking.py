"""Asking before something is gone for good."""

import sys

from headrace.errors import Refused


def confirmed(what: str, question: str) -> bool:
    """Ask whoever sits at the terminal; `what` says, where nobody does, what was to be done."""
    if not sys.stdin.isatty():
        raise Refused(f"nobody can be asked whether to {what}", hint="Say so with --yes.")
    return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")
