"""`headrace produce`: files, directories and standard input into a stream."""

import argparse
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.cli import addresses
from headrace.cli.command import Command, Context, argument, count
from headrace.cli.progress import Progress
from headrace.clock import SystemClock
from headrace.errors import Exit, HeadraceError, Interrupted, Refused
from headrace.local.home import Home

if TYPE_CHECKING:
    from etl_procs.model import Stream
    from ingest.collector import Status

GOES_ON = "Run the same command again: it goes on there."
NAMELESS = (
    "Standard input without --source cannot be gone on in: what of it is sent again counts again."
)


def run_produce(context: Context) -> int:
    """Send all tuples of the files; return when the broker has all of them durably."""
    # Here, because every other command would pay for importing Kafka's client.
    from etl_procs import loader
    from headrace.cli.lags import until_taken
    from ingest.collector import Status, collect
    from ingest.source import Ended

    arguments, config = context.arguments, context.config
    dataflows = loader.load(config.flows)
    stream = loader.stream_named(dataflows, arguments.stream)
    marks = _marks(arguments, stream)
    files = arguments.files or ([] if marks else ["-"])
    _check(arguments, files)
    goes_on = NAMELESS if "-" in files and not arguments.source else GOES_ON
    config = replace(config, broker=addresses.broker(config))
    Home(config.home).create()
    if "-" in files and sys.stdin.isatty():
        print("reading lines, one tuple each; Ctrl-D ends", file=sys.stderr)
    progress, status = Progress(sys.stderr, SystemClock()), Status()
    try:
        collect(
            config,
            stream,
            files,
            follow=arguments.follow,
            source=arguments.source or "",
            partition=arguments.partition,
            marks=[(header, b"%d" % value) for header, value, _ in marks],
            status=status,
            tell=progress.say,
            progress=progress.show,
        )
        progress.clear()
        print(f"{_sent(status.tuples)} in {stream.topic}{_passed(status)}")
        for _, _, said in marks:
            print(f"{said} in each of its {status.partitions} partitions")
        if arguments.wait:
            until_taken(config, dataflows[stream.dataflow], stream, config.broker)
            print("the core has taken them")
    except KeyboardInterrupt:
        progress.clear()
        raise Interrupted(
            f"interrupted: {_counted(status.tuples)} safe in {stream.topic}", hint=goes_on
        ) from None
    except HeadraceError as error:
        progress.clear()
        if not status.tuples:
            raise
        raise type(error)(
            f"{error.what}\n{_counted(status.tuples)} safe in {stream.topic}",
            hint=error.hint if isinstance(error, Ended) else f"{error.hint}\n  {goes_on}",
        ) from error
    return Exit.OK


def _marks(arguments: argparse.Namespace, stream: "Stream") -> list[tuple[str, int, str]]:
    """Give what is said at the end: header, its value, and how the user is told."""
    from etl_procs.rules import ByInterval, ByPunctuation
    from ingest.records import COMPLETE, FINISHED, PUNCTUATION

    marks = []
    if arguments.punctuation is not None:
        _check_rule(stream, ByPunctuation, "punctuation", "--punctuation")
        batch = arguments.punctuation
        marks.append((PUNCTUATION, batch, f"batch {batch} is ended"))
    if arguments.complete is not None:
        _check_rule(stream, ByInterval, "intervals", "--complete")
        time = arguments.complete
        marks.append((COMPLETE, time, f"all before {time} is said to be there"))
    if arguments.finished:
        marks.append((FINISHED, 1, "the stream is said to be finished"))
    return marks


def _check_rule(stream: "Stream", rule: type, by: str, flag: str) -> None:
    if not isinstance(stream.batches, rule):
        raise Refused(f"stream {stream.topic} is not cut by {by}", hint=f"Leave {flag} out.")


def _check(arguments: argparse.Namespace, files: list[str]) -> None:
    from ingest.records import SOURCE_BYTES_MAX

    ending = [
        flag
        for flag in ("punctuation", "complete", "finished", "wait")
        if getattr(arguments, flag) not in (None, False)
    ]
    if arguments.follow and ending:
        raise Refused(
            f"--follow has no end, and --{ending[0]} comes at the end", hint="Leave one out."
        )
    if arguments.source is None:
        return
    if len(files) != 1:
        raise Refused(
            f"--source {arguments.source} names one source, and there are {len(files)} files",
            hint="Send each by a command of its own, or leave --source out.",
        )
    if not 1 <= len(arguments.source.encode("utf-8", "replace")) <= SOURCE_BYTES_MAX:
        raise Refused(
            f"--source is not between 1 and {SOURCE_BYTES_MAX:,} bytes long",
            hint="Nothing was sent. Give another name, or leave --source out.",
        )


def _counted(tuples: int) -> str:
    return "1 tuple is" if tuples == 1 else f"{tuples:,} tuples are"


def _sent(tuples: int) -> str:
    return _counted(tuples) if tuples else "nothing new is"


def _passed(status: "Status") -> str:
    if not status.passed:
        return ""
    return f"; {status.passed} of {status.sources} files had been sent before"


ARGUMENTS = (
    argument("stream", metavar="STREAM", help="a stream, or dataflow.stream"),
    argument(
        "files",
        metavar="FILE",
        nargs="*",
        default=[],
        help="a file, a glob, or a directory, whose files are meant; -, or none: standard input",
    ),
    argument(
        "--follow",
        action="store_true",
        help="go on: with what is appended to the files, and with files that come into "
        "directories; what cannot be followed (compressed, XML, Avro) is sent once, when it is "
        "complete",
    ),
    argument(
        "--source",
        metavar="NAME",
        help="what the one FILE is called in the topic; standard input has no name without it, and "
        "its repeats are not recognised",
    ),
    argument(
        "--partition",
        type=count,
        metavar="N",
        help="send all tuples to partition N, whatever the stream's route; the same N again when "
        "it goes on: repeats are recognised within a partition",
    ),
    argument(
        "--punctuation",
        type=count,
        metavar="N",
        help="end batch N in every partition, after the tuples of the files, if there are any",
    ),
    argument(
        "--complete",
        type=int,
        metavar="T",
        help="say to every partition, after the tuples, that nothing before event time T comes",
    ),
    argument(
        "--finished",
        action="store_true",
        help="say to every partition, after the tuples, that nothing more comes for now",
    ),
    argument(
        "--wait", action="store_true", help="return when the core has taken them, or rejected them"
    ),
)


COMMANDS = [
    Command(
        name="produce",
        summary="send files into a stream",
        description="Send the tuples of files into the stream's Kafka topic, in the stream's "
        "format, and return when the broker has all of them. Files may be compressed. What was "
        "sent of a file is remembered in the data folder: after an interruption or a kill, the "
        "same command goes on there, and what was sent twice has no further effect. A broker that "
        "is away is waited for, up to collect.wait_s.",
        examples=(
            "headrace produce votes votes.jsonl --wait",
            "headrace produce readings day-7.jsonl.gz --punctuation 7",
            "headrace produce readings incoming/ 'archive/*.csv' --follow",
            'echo \'{"phone": "555-0100", "contestant": 2}\' | headrace produce leaderboard.votes',
        ),
        run=run_produce,
        arguments=ARGUMENTS,
    )
]
