"""`headrace produce`: lines of a file, or of standard input, into a stream."""

import argparse
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from typing import BinaryIO

from headrace.cli import addresses
from headrace.cli.command import Command, Context, count
from headrace.clock import SystemClock
from headrace.errors import Exit, HeadraceError, Interrupted, Refused

PROGRESS_EVERY_S = 1.0


def run_produce(context: Context) -> int:
    """Send each line as one tuple; return when the broker has all of them durably."""
    # Here, because every other command would pay for importing Kafka's client.
    from etl_procs import loader
    from etl_procs.rules import ByPunctuation
    from headrace.cli.lags import until_taken
    from ingest import topics
    from ingest.producer import produce, punctuate

    arguments, config = context.arguments, context.config
    dataflows = loader.load(config.flows)
    stream = loader.stream_named(dataflows, arguments.stream)
    batch = arguments.punctuation
    if batch is not None and not isinstance(stream.batches, ByPunctuation):
        raise Refused(
            f"stream {stream.topic} is not cut by punctuation", hint="Leave --punctuation out."
        )
    broker = addresses.broker(config)
    topic = topics.ensure(broker, stream)
    progress = Progress()
    file = arguments.file or ("-" if batch is None else os.devnull)
    if file == "-" and sys.stdin.isatty():
        print("reading lines, one tuple each; Ctrl-D ends", file=sys.stderr)
    try:
        with _opened(file) as lines:
            for sent in produce(broker, stream.topic, _tuples(lines)):
                progress.tell(sent)
        print(f"{_counted(progress.sent)} in {stream.topic}")
        if batch is not None:
            punctuate(broker, topic, batch)
            print(f"batch {batch} is ended in each of its {len(topic.partitions)} partitions")
        if arguments.wait:
            until_taken(config, dataflows[stream.dataflow], stream, broker)
            print("the core has taken them")
    except KeyboardInterrupt:
        raise Interrupted(
            f"interrupted after {progress.sent:,} tuples",
            hint="The last of them may not be in the topic. Send all again if repeats do no harm.",
        ) from None
    return Exit.OK


def _counted(tuples: int) -> str:
    return "1 tuple is" if tuples == 1 else f"{tuples:,} tuples are"


def _opened(file: str) -> "nullcontext[BinaryIO] | BinaryIO":
    if file == "-":
        return nullcontext(sys.stdin.buffer)
    try:
        return open(file, "rb")
    except OSError as error:
        raise HeadraceError(
            f"{file} cannot be read: {error.strerror}", hint="Nothing was sent. Name another file."
        ) from error


def _tuples(lines: Iterable[bytes]) -> Iterator[bytes]:
    stripped = (line.rstrip(b"\r\n") for line in lines)
    return (line for line in stripped if line)


class Progress:
    """Counts what was sent, and says so now and then."""

    def __init__(self) -> None:
        self.sent = 0
        self._clock = SystemClock()
        self._started = self._told = self._clock.monotonic()

    def tell(self, sent: int) -> None:
        """Take note of the count; print it if it is time."""
        self.sent = sent
        now = self._clock.monotonic()
        if now - self._told >= PROGRESS_EVERY_S:
            self._told = now
            print(f"{sent:,} tuples, {sent / (now - self._started):,.0f}/s", file=sys.stderr)


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("stream", metavar="STREAM", help="a stream, or dataflow.stream")
    parser.add_argument(
        "file", metavar="FILE", nargs="?", help="one tuple a line; -, or none: standard input"
    )
    parser.add_argument(
        "--punctuation",
        type=count,
        metavar="N",
        help="end batch N in every partition, after the lines of FILE, if there is one",
    )
    parser.add_argument(
        "--wait", action="store_true", help="return when the core has taken them, or rejected them"
    )


COMMANDS = [
    Command(
        name="produce",
        summary="send the lines of a file into a stream",
        description="Send each line as one tuple into the stream's Kafka topic, and return when "
        "the broker has all of them. Empty lines are left out. Any other Kafka producer will do as "
        "well.",
        examples=(
            "headrace produce votes votes.jsonl --wait",
            "headrace produce readings day-7.jsonl --punctuation 7",
            'echo \'{"phone": "555-0100", "contestant": 2}\' | headrace produce leaderboard.votes',
        ),
        run=run_produce,
        arguments=_arguments,
    )
]
