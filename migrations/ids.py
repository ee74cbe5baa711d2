"""Ids of migrations: which ones a caller may choose. They are parts of a path."""

import re

LENGTH_MAX = 200
PATTERN = r"^\.*[A-Za-z0-9_:+~-][A-Za-z0-9._:+~-]*$"
RULE = f"letters, digits and . _ : + ~ -, {LENGTH_MAX} at most, and not dots alone"


def is_one(text: str) -> bool:
    """Tell whether a text may be an id."""
    return len(text) <= LENGTH_MAX and re.fullmatch(PATTERN, text, re.ASCII) is not None
