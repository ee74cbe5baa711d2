"""`headrace config`: what is in force, and where it came from."""

from headrace.cli.command import Command, Context
from headrace.errors import Exit


def print_config(context: Context) -> int:
    """Print every key with its value and its origin."""
    lines = context.loaded.lines()
    width = max(len(f"{key} = {value}") for key, value, _ in lines)
    for key, value, origin in lines:
        setting = f"{key} = {value}"
        print(f"{setting:<{width}}  # {origin}")
    return Exit.OK


COMMANDS = [
    Command(
        name="config",
        summary="print the configuration in force, and where each key came from",
        description="Print every configuration key, its value, and where the value came from. "
        "Passwords and keys are hidden. docs/configuration.md describes each key.",
        examples=("headrace config", "HEADRACE_API_PORT=8080 headrace config | grep api.port"),
        run=print_config,
    )
]
