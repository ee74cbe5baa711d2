"""Metrics: what the engine measures and the core holds, in the text format of Prometheus."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from etl_procs.measured import Measured
from etl_procs.metrics import BOUNDS
from etl_procs.reader import Reader
from headrace.errors import NotRunning
from migrations.pushing import Pushing, State

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PREFIX = "headrace_core_"

Labels = Mapping[str, str]
Sample = tuple[str, Labels, float]
"""What follows the metric's name, its labels, its value."""
Samples = Sequence[tuple[Labels, float]]


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric with its samples."""

    name: str
    kind: str
    help: str
    samples: list[Sample]
    prefix: str = PREFIX

    def lines(self) -> Iterator[str]:
        """Write it out."""
        if not self.samples:
            return
        yield f"# HELP {self.prefix}{self.name} {self.help}"
        yield f"# TYPE {self.prefix}{self.name} {self.kind}"
        for suffix, labels, value in self.samples:
            pairs = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
            of = "{" + pairs + "}" if pairs else ""
            yield f"{self.prefix}{self.name}{suffix}{of} {_number(value)}"


class Figures:
    """Where the figures come from: the cores' committed state, and an engine if one lives."""

    def __init__(
        self,
        cores: Sequence[Path],
        living: Callable[[], Sequence[Measured | None]],
        pushers: Callable[[], Mapping[str, Pushing]] = dict,
    ) -> None:
        self.cores = cores
        self._living = living
        self._pushers = pushers

    def living(self) -> Sequence[Measured | None]:
        """Give what each partition of a living engine measures; None where none lives."""
        return self._living()

    def text(self, more: Iterable[Metric] = ()) -> str:
        """Give all of them, and more, as they are now. What a dead engine has left is not among
        them.
        """
        living = self._living()
        up = bool(living) and None not in living
        metrics = [gauge("up", "Whether an engine runs and measures.", [({}, up)])]
        pushers = [
            ({"warehouse": name}, pusher.state is not State.STOPPED)
            for name, pusher in self._pushers().items()
        ]
        metrics += [gauge("pusher_up", "Whether it pushes, or waits for a warehouse.", pushers)]
        by_core = [_held(path) for path in self.cores]
        metrics += _of_all(by_core)
        metrics += _of_all([[] if found is None else _measured(found) for found in living])
        metrics += more
        return "\n".join(line for metric in metrics for line in metric.lines()) + "\n"


def _of_all(cores: Iterable[Iterable[Metric]]) -> Iterable[Metric]:
    """Put the metrics of all cores together, each sample with the partition it is of."""
    together: dict[str, Metric] = {}
    for partition, metrics in enumerate(cores):
        for metric in metrics:
            whole = together.setdefault(metric.name, replace(metric, samples=[]))
            of = {"partition": str(partition)}
            whole.samples.extend((what, {**of, **labels}, n) for what, labels, n in metric.samples)
    return together.values()


def _held(path: Path) -> list[Metric]:
    """Give what a core holds, whether or not an engine runs."""
    try:
        with Reader(path).snapshot() as snapshot:
            batches, dead = snapshot.batches(), snapshot.dead_letters.counts()
            staged = {name: snapshot.waiting(name) for name in batches}
            confirmed = [
                ({"dataflow": name, "warehouse": place}, batch)
                for name in batches
                for place, batch in snapshot.confirmed(name).items()
            ]
    except NotRunning:
        return []
    letters, tuples = ({name: dead.get(name, (0, 0))[i] for name in batches | dead} for i in (0, 1))
    return [
        gauge("last_batch", "The last batch that is committed.", _of("", batches)),
        gauge("staged_rows", "Rows that wait for a warehouse.", _of("", staged)),
        gauge("confirmed_batch", "The last batch that a warehouse has.", confirmed),
        gauge("dead_letters", "Dead letters that the core holds.", _of("", letters)),
        gauge("dead_letter_tuples", "Tuples in those dead letters.", _of("", tuples)),
    ]


COUNTED = (
    ("counter", "", "batches", "batches_total", "Batches committed."),
    ("counter", "stream", "tuples", "tuples_total", "Tuples from outside, in committed batches."),
    ("counter", "procedure", "aborts", "aborts_total", "Attempts that failed."),
    ("counter", "procedure", "dead_batches", "dead_batches_total", "Batches given up."),
    ("counter", "", "dead_tuples", "dead_tuples_total", "Tuples set aside."),
    ("gauge", "", "epochs", "watermark", "The last interval or punctuation that is closed."),
    ("gauge", "table", "parked", "parked_rows", "Rows that wait in tables that park."),
)
"""Of figures by name: kind, what the name is of beside its dataflow, key, metric, help."""
QUEUES = (
    ("counter", "repeats", "repeats_total", "Tuples that their source had sent before."),
    ("gauge", "tuples", "waiting_tuples", "Tuples that have arrived and are in no commit."),
    ("gauge", "oldest_s", "oldest_waiting_seconds", "The age of the oldest of them."),
)
LOOKUPS = (
    ("counter", "hits", "lookup_hits_total", "Keys that an index answered, or a copy."),
    ("counter", "misses", "lookup_misses_total", "Keys that SQL answered, or a warehouse."),
    ("counter", "builds", "lookup_builds_total", "Indexes and copies read from their tables."),
    ("gauge", "entries", "lookup_entries", "Versions in an index, or a copy."),
    ("gauge", "bytes", "lookup_bytes", "Memory that it takes."),
    ("gauge", "behind", "lookup_behind", "Changes that an index did not have when asked last."),
    ("gauge", "age_s", "lookup_age_seconds", "How old the copy was that answered last."),
    ("counter", "waits", "lookup_waits_total", "Questions that a warehouse did not answer."),
)


def _measured(found: Measured) -> Iterator[Metric]:
    figures = found.figures
    yield gauge("measured_timestamp_seconds", "When this was so.", [({}, found.at.timestamp())])
    yield counter("commits_total", "Groups of batches committed.", [({}, figures["commits"])])
    rolled_back: Samples = [({}, figures["rollbacks"])]
    yield counter("rollbacks_total", "Groups rolled back, and run again.", rolled_back)
    for kind, of, key, name, text in COUNTED:
        yield _plain(kind, name, text, _of(of, figures[key]))
    for of, several, metrics in (
        ("stream", figures["queues"], QUEUES),
        ("lookup", figures["lookups"], LOOKUPS),
    ):
        for kind, key, name, text in metrics:
            each = {one: figure[key] for one, figure in several.items()}
            yield _plain(kind, name, text, _of(of, each))
    how = [
        ({**_labels("lookup", name), "strategy": figure["strategy"]}, 1)
        for name, figure in figures["lookups"].items()
    ]
    yield gauge("lookup_strategy", "By which it is answered now: 1.", how)
    units = [(_labels("procedure", name), of) for name, of in figures["units"].items()]
    yield histogram("procedure_seconds", "How long a procedure took for one batch.", units)
    name, text = "group_seconds", "How long one commit took, with all in it."
    yield histogram(name, text, [({}, figures["groups"])])
    yield _sizes(figures["group_sizes"], sum(figures["batches"].values()))


def _plain(kind: str, name: str, text: str, samples: Samples) -> Metric:
    return Metric(name, kind, text, [("", labels, value) for labels, value in samples])


gauge, counter = partial(_plain, "gauge"), partial(_plain, "counter")


def histogram(name: str, text: str, found: Iterable[tuple[Labels, Mapping[str, Any]]]) -> Metric:
    """Make a metric of histograms, by their labels."""
    samples: list[Sample] = []
    for labels, of in found:
        buckets = [(bound, of["buckets"].get(bound, 0)) for bound in BOUNDS[:-1]]  # one has no end
        samples += _buckets(labels, buckets, of["count"], of["sum_s"])
    return Metric(name, "histogram", text, samples)


def _sizes(sizes: Mapping[str, int], batches: int) -> Metric:
    buckets = sorted(sizes.items(), key=lambda item: int(item[0]))
    samples = list(_buckets({}, buckets, sum(sizes.values()), batches))
    return Metric("group_batches", "histogram", "Batches that committed together.", samples)


def _buckets(
    labels: Labels, buckets: Iterable[tuple[str, int]], count: int, total: float
) -> Iterator[Sample]:
    below = 0
    for bound, held in buckets:
        below += held
        yield "_bucket", {**labels, "le": bound}, below
    yield "_bucket", {**labels, "le": "+Inf"}, count
    yield "_sum", labels, total
    yield "_count", labels, count


def _of(kind: str, found: Mapping[str, float]) -> Samples:
    return [(_labels(kind, name), value) for name, value in found.items()]


def _labels(kind: str, name: str) -> Labels:
    """Say what figures are of: a dataflow, or something of that kind in one."""
    dataflow, _, rest = name.partition(".")
    return {"dataflow": dataflow, kind: rest} if kind else {"dataflow": name}


def _number(value: float) -> str:
    return repr(value) if isinstance(value, float) else str(int(value))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
