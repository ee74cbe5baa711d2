"""A `java` that says what a test lets it say."""

from pathlib import Path

MODULES = "java.base@17.0.15\njdk.incubator.vector@17.0.15"


def install(folder: Path, *, modules: str = MODULES, otherwise: str = "exit 1") -> Path:
    """Write the program `java`, and give the folder that it is in.

    It answers `--list-modules`, if there are any, and runs `otherwise` for everything else.
    """
    listing = f"if [ \"$1\" = --list-modules ]; then echo '{modules}'; exit 0; fi\n"
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "java"
    program.write_text(f"#!/bin/sh\n{listing if modules else ''}{otherwise}\n")
    program.chmod(0o755)
    return folder
