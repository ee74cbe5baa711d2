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
        metrics = [_gauge("up", "Whether an engine runs and measures.", [({}, up)])]
        pushers = [
            ({"warehouse": name}, pusher.state is not State.STOPPED)
            for name, pusher in self._pushers().items()
        ]
        metrics += [_gauge("pusher_up", "Whether it pushes, or waits for a warehouse.", pushers)]
        by_core = [_held(path) for path in self.cores]
        metrics += _of_all(by_core)
        metrics += _of_all([[] if found is None else _measured(found) for found in living])
        metrics += more
        return "\n".join(line for metric in metrics for line in metric.lines()) + "\n"


def _of_all(cores: Sequence[Sequence[Metric]]) -> Iterable[Metric]:
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
    dead = {**dict.fromkeys(batches, (0, 0)), **dead}
    letters = {name: count for name, (count, _) in dead.items()}
    tuples = {name: count for name, (_, count) in dead.items()}
    return [
        _gauge("last_batch", "The last batch that is committed.", _by_flow(batches)),
        _gauge("staged_rows", "Rows that wait for a warehouse.", _by_flow(staged)),
        _gauge("confirmed_batch", "The last batch that a warehouse has.", confirmed),
        _gauge("dead_letters", "Dead letters that the core holds.", _by_flow(letters)),
        _gauge("dead_letter_tuples", "Tuples in those dead letters.", _by_flow(tuples)),
    ]


def _measured(found: Measured) -> list[Metric]:
    figures = found.figures
    queues = {name.partition("."): queue for name, queue in figures["queues"].items()}
    by_stream = [({"dataflow": d, "stream": s}, queue) for (d, _, s), queue in queues.items()]
    return [
        _gauge("measured_timestamp_seconds", "When this was so.", [({}, found.at.timestamp())]),
        counter("commits_total", "Groups of batches committed.", [({}, figures["commits"])]),
        counter(
            "rollbacks_total", "Groups rolled back, and run again.", [({}, figures["rollbacks"])]
        ),
        counter("batches_total", "Batches committed.", _by_flow(figures["batches"])),
        counter(
            "tuples_total",
            "Tuples taken from outside, in batches that are committed.",
            [(_stream(name), count) for name, count in figures["tuples"].items()],
        ),
        counter("aborts_total", "Attempts that failed.", _by_unit(figures["aborts"])),
        counter("dead_batches_total", "Batches given up.", _by_unit(figures["dead_batches"])),
        counter("dead_tuples_total", "Tuples set aside.", _by_flow(figures["dead_tuples"])),
        counter(
            "repeats_total",
            "Tuples passed over, for their source had sent them before.",
            [(labels, queue["repeats"]) for labels, queue in by_stream],
        ),
        _gauge(
            "waiting_tuples",
            "Tuples that have arrived and are in no commit.",
            [(labels, queue["tuples"]) for labels, queue in by_stream],
        ),
        _gauge(
            "oldest_waiting_seconds",
            "The age of the oldest of them.",
            [(labels, queue["oldest_s"]) for labels, queue in by_stream],
        ),
        _gauge(
            "watermark",
            "The last interval or punctuation that is closed.",
            _by_flow(figures["epochs"]),
        ),
        _gauge(
            "parked_rows",
            "Rows that wait in tables that park.",
            [(_table(name), count) for name, count in figures["parked"].items()],
        ),
        *_lookups(figures["lookups"]),
        histogram(
            "procedure_seconds",
            "How long a procedure took for one batch.",
            [(_unit(name), histogram) for name, histogram in figures["units"].items()],
        ),
        histogram(
            "group_seconds", "How long one commit took, with all in it.", [({}, figures["groups"])]
        ),
        _sizes(figures["group_sizes"], sum(figures["batches"].values())),
    ]


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


def _lookups(found: Mapping[str, Mapping[str, Any]]) -> Iterator[Metric]:
    labelled = [(_lookup(name), figures) for name, figures in found.items()]
    for kind, key, name, text in LOOKUPS:
        yield _plain(kind, name, text, [(labels, figures[key]) for labels, figures in labelled])
    how = [({**labels, "strategy": figures["strategy"]}, 1.0) for labels, figures in labelled]
    yield _gauge("lookup_strategy", "By which it is answered now: 1.", how)


def _plain(kind: str, name: str, text: str, samples: Iterable[tuple[Labels, float]]) -> Metric:
    return Metric(name, kind, text, [("", labels, value) for labels, value in samples])


_gauge, counter = partial(_plain, "gauge"), partial(_plain, "counter")


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


def _by_flow(found: Mapping[str, float]) -> list[tuple[Labels, float]]:
    return [({"dataflow": name}, value) for name, value in found.items()]


def _by_unit(found: Mapping[str, float]) -> list[tuple[Labels, float]]:
    return [(_unit(name), value) for name, value in found.items()]


def _labels(kind: str, full_name: str) -> Labels:
    dataflow, _, name = full_name.partition(".")
    return {"dataflow": dataflow, kind: name}


_unit, _table, _lookup, _stream = (
    partial(_labels, kind) for kind in ("procedure", "table", "lookup", "stream")
)


def _number(value: float) -> str:
    return repr(value) if isinstance(value, float) else str(int(value))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
