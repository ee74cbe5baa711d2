"""`headrace dead-letters`: what could not be processed, and what to do with it."""

import json
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from headrace.cli.asking import confirmed
from headrace.cli.command import JSON, Action, Command, Context, argument, count
from headrace.cli.table import laid_out
from headrace.crash import CrashPoints
from headrace.errors import ConfigError, Exit
from headrace.local import lock
from headrace.local.home import Home

if TYPE_CHECKING:
    from etl_procs.dead_letters import DeadLetters
    from etl_procs.letter import DeadLetter

SHOWN_BYTES = 60
LINES = 20


def _list(context: Context) -> Exit:
    """List dead letters: counts by reason, then the oldest ones; or all of them as JSON lines."""
    arguments = context.arguments
    most = arguments.lines
    with _reading(context) as letters:
        wanted = _meant(context, letters)
        if arguments.json:
            for number in wanted:
                print(json.dumps(letters.find(number).document(), ensure_ascii=False))
            return Exit.OK
        tallies = [
            tally
            for tally in letters.tallies()
            if arguments.dataflow in ("", tally.dataflow) and arguments.reason in tally.reason
        ]
        first = [letters.find(number) for number in wanted[:most]]
        if not wanted:
            print(_none(letters))
            return Exit.OK
    head = ("dataflow", "reason", "letters", "tuples", "to run again")
    print("\n".join(laid_out(head, tallies[:most], right=[2, 3, 4])))
    if len(tallies) > most:  # a reason may tell of a value, and be of one tuple only
        rest = sum(tally.letters for tally in tallies[most:])
        print(f"... and {len(tallies) - most:,} more reasons, of {rest:,} letters")
    if first:
        print("", *_table(first), sep="\n")
    if more := len(wanted) - len(first):
        print(f"... and {more:,} more: -n {len(wanted)}, or --reason and --dataflow")
    return Exit.OK


def _none(letters: "DeadLetters") -> str:
    """Say that no letter is meant, and of which dataflows there are any."""
    known = sorted({tally.dataflow for tally in letters.tallies()})
    if not known:
        return "There are no dead letters."
    return f"There is no such dead letter; there are some of {', '.join(known)}."


def _show(context: Context) -> Exit:
    """Show all that is known of one."""
    with _reading(context) as letters:
        letter = letters.find(context.arguments.id)
        others = [number for number in letters.together(letter.id) if number != letter.id]
    if context.arguments.json:
        print(json.dumps(letter.document(), ensure_ascii=False))
    else:
        print("\n".join(_described(letter, others, context.arguments.lines)))
    return Exit.OK


def _replay(context: Context) -> Exit:
    """Have the engine run letters again."""
    every = context.arguments.all
    with _changing(context) as letters:
        wanted = _wanted(context, letters)
        replays = letters.replay(wanted, where_possible=every)
    if replays:
        names = "" if every else f": {_named(replays)}"
        print(f"{_are(replays)} to run again{names}.")
    else:
        print("There is no dead letter that could run again.")
    if also := sorted(set(replays) - set(wanted)):
        print(f"{_named(also)} of the same batch, which its procedure gave up together.")
    if rest := len(set(wanted) - set(replays)):
        print(f"{rest} cannot run again: not decoded, or nobody takes them as they are any more.")
    if replays and lock.is_held(Home(context.config.home).writer_lock):
        print(
            "The engine takes them within a second, as the next batch of their dataflow; what "
            "fails again is a dead letter again."
        )
    elif replays:
        print("No engine runs here: the next one takes them when it has started.")
    return Exit.OK


def _drop(context: Context) -> Exit:
    """Delete letters for good, after asking."""
    arguments = context.arguments
    with _reading(context) as letters:
        wanted = _wanted(context, letters)
        first = [letters.find(number) for number in wanted[:LINES]]
        given_up = {other for number in wanted for other in letters.together(number)}
        if not wanted:
            print(_none(letters))
            return Exit.OK
    if not arguments.yes:
        print("\n".join(_table(first)))
        what = f"drop {_counted(wanted)}"
        if not confirmed(what, f"{what.capitalize()} for good?"):
            print("Nothing was dropped.")
            return Exit.REFUSED
    with _changing(context) as letters:
        dropped = letters.drop(wanted, where_possible=arguments.all)
    print(f"{_are(dropped)} gone.")
    if stay := sorted(given_up - set(wanted)):
        print(f"{_named(stay)}, of other streams of the same batch: still there.")
    return Exit.OK


def _wanted(context: Context, letters: "DeadLetters") -> list[int]:
    """Give the letters that are named, or all that are meant."""
    arguments = context.arguments
    if bool(arguments.ids) == arguments.all or (
        arguments.ids and (arguments.reason or arguments.dataflow)
    ):
        raise ConfigError(
            f"dead-letters {arguments.action} takes IDs, or --all",
            hint="With --all, --reason TEXT and --dataflow NAME say which.",
        )
    return _meant(context, letters) if arguments.all else list(dict.fromkeys(arguments.ids))


def _meant(context: Context, letters: "DeadLetters") -> list[int]:
    from etl_procs.letter import Sought

    arguments = context.arguments
    return letters.chosen(Sought(dataflow=arguments.dataflow, reason=arguments.reason))


def _reading(context: Context) -> AbstractContextManager["DeadLetters"]:
    # Here, because every other command would pay for importing Arrow.
    from etl_procs import letters
    from etl_procs.core import core_paths

    return letters.reading(core_paths(context.config.home))


def _changing(context: Context) -> AbstractContextManager["DeadLetters"]:
    from etl_procs import letters
    from etl_procs.core import core_paths

    config = context.config
    crash = CrashPoints(config.testing.crash_at)
    return letters.changing(core_paths(config.home), config.core, crash)


def _counted(numbers: Sequence[int]) -> str:
    return f"{len(numbers)} dead letter{'' if len(numbers) == 1 else 's'}"


def _are(numbers: Sequence[int]) -> str:
    return f"{_counted(numbers)} {'is' if len(numbers) == 1 else 'are'}"


def _named(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:LINES]))
    return shown + (f" and {len(numbers) - LINES} more" if len(numbers) > LINES else "")


def _table(letters: Iterable["DeadLetter"]) -> list[str]:
    rows = [
        (x.id, _what(x), _place(x), x.batch, x.unit or "-", x.reason, _content(x)) for x in letters
    ]
    head = ("id", "what", "from", "batch", "procedure", "reason", "tuple")
    return laid_out(head, rows, right=[0, 3])


def _what(letter: "DeadLetter") -> str:
    return f"batch of {letter.row_count}" if letter.is_batch else "tuple"


def _place(letter: "DeadLetter") -> str:
    if letter.topic is None:
        return f"{letter.dataflow}.{letter.stream}"
    index = "" if letter.index is None else f"#{letter.index}"
    return f"{letter.topic}[{letter.partition}]@{letter.offset}{index}"


def _content(letter: "DeadLetter") -> str:
    if letter.is_batch:
        return f"(show {letter.id})"
    if letter.value is None:
        return letter.fields or "(none)"
    text = letter.value[:SHOWN_BYTES].decode("utf-8", errors="backslashreplace")
    return text + ("..." if len(letter.value) > SHOWN_BYTES else "")


def _described(letter: "DeadLetter", others: Sequence[int], lines: int) -> list[str]:
    """Write everything about one letter; of a batch, its first tuples."""
    facts: list[tuple[str, object]] = [
        ("dead letter", f"{letter.id}, a {_what(letter)}"),
        ("from", _place(letter)),
        ("batch", letter.batch),
        ("procedure", letter.unit or "none: see the reason"),
        ("reason", letter.reason),
        ("attempts", letter.attempts),
        ("at", letter.at),
        ("to run again", "yes, when an engine comes to it" if letter.replay else "not asked for"),
    ]
    if others:
        facts.append(("given up with", f"{_named(others)}: other streams of the same batch"))
    if letter.fields is not None:
        facts.append(("columns", letter.fields))
    if letter.value is not None:
        facts.append(("bytes", letter.value.decode("utf-8", errors="backslashreplace")))
    return [*laid_out(("", ""), facts)[2:], *_tuples(letter, lines)]


def _tuples(letter: "DeadLetter", lines: int) -> list[str]:
    rows = letter.rows(lines)
    if not rows:
        return []
    names = [name for name in rows[0] if not name.startswith("_")]
    cells = [(_position(row), *(row[name] for name in names)) for row in rows]
    more = letter.row_count - len(rows)
    said = [f"... and {more} more: -n {letter.row_count}"] if more else []
    return ["", *laid_out(("position", *names), cells), *said]


def _position(row: dict[str, Any]) -> str:
    if row["_partition"] is None:
        return "-"
    index = "" if row["_index"] is None else f"#{row['_index']}"
    return f"[{row['_partition']}]@{row['_offset']}{index}"


ID = {"type": count, "metavar": "ID", "help": "which; `list` tells"}
CHOSEN = (
    argument("--reason", default="", metavar="TEXT", help="those whose reason holds TEXT"),
    argument("--dataflow", default="", metavar="NAME", help="those of one dataflow"),
)
MEANT = (
    argument("ids", nargs="*", **ID),
    argument("--all", action="store_true", help="all instead of IDs, or those that are meant by:"),
    *CHOSEN,
)
LINES_OF = argument(
    "-n",
    "--lines",
    type=count,
    default=LINES,
    metavar="N",
    help=f"how many reasons and letters, or tuples of a batch ({LINES})",
)

COMMANDS = [
    Command(
        name="dead-letters",
        summary="show, replay or drop what could not be processed",
        description="Look at what could not be processed, and decide what becomes of it: tuples "
        "that did not decode or that a procedure rejected, and whole batches with which a "
        "procedure failed until its attempts were used up. It works on the core, whether or not "
        "an engine runs. Replayed letters of one procedure run together, as the next batch of "
        "their dataflow.",
        examples=(
            "headrace dead-letters list",
            "headrace dead-letters list --json | jq -r .reason | sort | uniq -c",
            "headrace dead-letters show 7 -n 100",
            "headrace dead-letters replay 7 9",
            "headrace dead-letters replay --all --reason 'division by zero'",
            "headrace dead-letters drop --all --dataflow shop --reason 'not JSON' --yes",
        ),
        actions=(
            Action("list", "show them, oldest first", _list, (*CHOSEN, LINES_OF, JSON)),
            Action("show", "show all of one", _show, (argument("id", **ID), LINES_OF, JSON)),
            Action("replay", "have the engine run them again", _replay, MEANT),
            Action(
                "drop",
                "delete them for good, after asking",
                _drop,
                (*MEANT, argument("--yes", action="store_true", help="do not ask")),
            ),
        ),
    )
]
