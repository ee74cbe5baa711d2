"""From files and Kafka into the core, beside bare Spark, bare kafka-python, psycopg and JDBC.

All of it is one run: one broker, one PostgreSQL, the same trades in the same topics.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

import psycopg
from psycopg import sql
from pyspark.sql import DataFrame, SparkSession

from bench import (
    broker,
    consumers,
    ingest_collect,
    ingest_data,
    ingest_framed,
    ingest_kills,
    ingest_load,
    ingest_single,
    ingest_spark,
    ingest_timed,
    ingest_turns,
    peer_jars,
    postgres,
)
from bench.harness import Figures, Result, Setup, Times, Trial, in_turns_per, timed
from bench.ingest_engine import Engine
from bench.ingest_kills import Work
from bench.ingest_latency import latencies_ms, percentile
from headrace import config
from headrace.crash import Point

RATES = (1_000, 10_000)
FRAMES_AT_ONCE, DOCUMENTS_AT_ONCE = (400, 800), (50_000, 100_000)
"""How many records bare Spark reads at once; the better of the two counts."""
TENFOLD = 10
HEADRACE = "headrace"


class Sizes(NamedTuple):
    """How much of everything there is."""

    lines: int
    killed: int
    documents: int
    waited_for: int
    """Documents that the consumer writes which commits each."""
    file_lines: int
    warm_s: float
    """How long tuples are sent before their latency counts: a JVM learns for some seconds."""
    latency_s: float
    points: tuple[Point, ...]


def sizes(setup: Setup) -> Sizes:
    """Choose them."""
    return Sizes(
        lines=setup.size(full=6_000_000, quick=200_000),
        killed=setup.size(full=20_000, quick=500),
        documents=setup.size(full=1_000_000, quick=20_000),
        waited_for=setup.size(full=10_000, quick=500),
        file_lines=setup.size(full=5_000_000, quick=100_000),
        warm_s=max(0.5, (0.7 if setup.quick else 10.0) * min(setup.scale, 1.0)),
        latency_s=max(0.7, (0.7 if setup.quick else 30.0) * min(setup.scale, 1.0)),
        points=ingest_kills.POINTS[-1:] if setup.quick else ingest_kills.POINTS,
    )


def run(setup: Setup) -> Result:
    """Kill everybody, then measure everybody."""
    size = sizes(setup)
    with (
        broker.server(setup.folder) as bootstrap,
        postgres.server(setup.folder) as conninfo,
        ThreadPoolExecutor() as beside,
    ):
        work = Work(bootstrap, ingest_single.trades.topic, size.killed, postgres.url(conninfo))
        filled = partial(ingest_load.fill, bootstrap)
        filled(ingest_single.trades, ingest_data.documents(size.killed))
        engine = _engine(setup.folder / "engine", bootstrap, work.url)
        killing = beside.submit(ingest_kills.ours_killed, engine, size.points)
        killed = {
            how: beside.submit(ingest_kills.consumer_killed, work, how)
            for how in consumers.INSERTING
        }
        at_once = max(1, min(DOCUMENTS_AT_ONCE[0], size.killed // 2))
        started = Future[SparkSession]()
        killed[ingest_kills.JDBC] = beside.submit(
            ingest_kills.jdbc_killed, started, work, setup.folder, at_once
        )
        with ingest_spark.spark(setup.folder / "spark", [peer_jars.driver()]) as spark:
            started.set_result(spark)
            killing.result()
            with engine.running(engine__read_tuples_max=str(_read_at_once(size))):
                engine.until_ready()
                peers = {how: done.result() for how, done in killed.items()}
                figures, ours = measured(engine, work, size)
            peers = {HEADRACE: ours} | peers
            work = work._replace(documents=size.killed + size.documents // 10 + size.documents)
            _add_speeds(peers, spark, work, size, setup.folder)
            filled(ingest_framed.trades, ingest_data.frames(size.lines))
            frames = in_turns_per(frame_trials(spark, bootstrap, size), setup, size.lines)
            singles = in_turns_per(document_trials(spark, work), setup, work.documents)
        collector, mb, memory = collected(setup, bootstrap, size.file_lines)
    fastest = {
        "frames": (frames, frames.fastest(_bare(frames))),
        "records": (singles, singles.fastest(_bare(singles))),
    }
    return Result(
        figures={
            "frames_rows_per_s": frames.rate("ours"),
            "records_rows_per_s": singles.rate("ours"),
            "collector_mb_per_s": mb * collector.rate("ours"),
            **figures,
            **memory,
        },
        peers={
            **peers,
            "bare_spark": {f"{of}_rows_per_s": t.rate(peer) for of, (t, peer) in fastest.items()},
            "bare_kafka": {"mb_per_s": mb * collector.rate("bare")},
        },
        ratios={
            **{f"{of}_to_bare_spark": t.ratios("ours", peer) for of, (t, peer) in fastest.items()},
            "collector_to_bare_kafka": collector.ratios("ours", "bare"),
        },
        settings={
            **{k: v for k, v in size._asdict().items() if k != "points"},
            "killed_at": [point.value for point in size.points],
            "rounds": len(frames.seconds["ours"]),
            "lines_a_frame": ingest_data.LINES_A_FRAME,
            "tuples_a_batch": ingest_framed.BATCH,
            "tuples_a_timed_batch": ingest_timed.BATCH,
            "partitions_of_a_topic": ingest_load.PARTITIONS,
            **{f"bare_spark_{of}": peer for of, (_, peer) in fastest.items()},
            "seed": ingest_data.SEED,
        },
    )


def measured(engine: Engine, work: Work, size: Sizes) -> tuple[Figures, Figures]:
    """Measure the harm, memory, speed and latency of the engine, which runs again."""
    kept = sql.SQL("{}.{}").format(
        sql.Identifier(ingest_single.single.name), sql.Identifier(ingest_single.kept.name)
    )

    def fill(first: int, count: int) -> None:
        documents = ingest_data.documents(count, first)
        ingest_load.fill(work.bootstrap, ingest_single.trades, documents)

    def until_there(count: int) -> None:
        engine.until(
            lambda: ingest_kills.counted(engine.warehouse_url, kept)[0] >= count, "up to date"
        )

    tenth = size.documents // TENFOLD
    until_there(size.killed)
    ours = ingest_kills.harm(work._replace(url=engine.warehouse_url), kept)
    engine.forget_peaks()
    fill(size.killed, tenth)
    until_there(size.killed + tenth)
    once = engine.peaks_mb()
    engine.forget_peaks()
    with engine.frozen():
        fill(size.killed + tenth, size.documents)
    with timed() as seconds:
        until_there(size.killed + tenth + size.documents)
    ours["rows_per_s"] = size.documents / seconds()
    figures = {"memory_tenfold_ratio_engine": engine.peaks_mb() / once}
    name, stream = ingest_timed.timed.name, ingest_timed.readings.name
    for rate in RATES:
        times = size.warm_s, size.latency_s
        found = latencies_ms(engine, work.bootstrap, name, stream, rate, *times)
        for percent in (50, 99):
            figures[f"latency_ms_p{percent}_at_{rate}"] = percentile(found, percent / 100)
    return figures, ours


def _read_at_once(size: Sizes) -> int:
    # The smaller input is to be several micro-batches, or it would need less memory than one; but
    # what comes in a second at the higher rate is to be few.
    several = max(max(RATES) // 2, size.documents // TENFOLD // 2)
    return min(config.Engine().read_tuples_max, several)


def frame_trials(spark: SparkSession, bootstrap: str, size: Sizes) -> dict[str, Trial]:
    """Frames: ours, and bare Spark with each of its settings."""
    frames = size.lines // ingest_data.LINES_A_FRAME
    return _trials(
        spark,
        bootstrap,
        ingest_framed.trades.topic,
        ingest_spark.frames,
        Path(ingest_framed.__file__),
        _at_once(FRAMES_AT_ONCE, frames),
        size.lines,
    )


def document_trials(spark: SparkSession, work: Work) -> dict[str, Trial]:
    """Single records: ours, and bare Spark with each of its settings."""
    return _trials(
        spark,
        work.bootstrap,
        work.topic,
        ingest_spark.documents,
        Path(ingest_single.__file__),
        _at_once(DOCUMENTS_AT_ONCE, work.documents),
        work.documents,
    )


def _trials(
    spark: SparkSession,
    bootstrap: str,
    topic: str,
    decode: Callable[[DataFrame], DataFrame],
    flow: Path,
    at_once: list[int],
    count: int,
) -> dict[str, Trial]:
    found: dict[str, Trial] = {"ours": partial(ingest_turns.ours, spark, bootstrap, flow, count)}
    for most in at_once:
        found[f"bare_{most}"] = partial(
            ingest_turns.bare, spark, bootstrap, topic, decode, most, count
        )
    return found


def _at_once(wanted: tuple[int, ...], there: int) -> list[int]:
    """Choose how many records are read at once: so many that there are some micro-batches."""
    return sorted({max(1, min(most, there // 4)) for most in wanted})


def _bare(times: Times) -> list[str]:
    return [name for name in times.seconds if name != "ours"]


def collected(setup: Setup, bootstrap: str, count: int) -> tuple[Times, float, Figures]:
    """Send a file in turns; and one that is a tenth of it, for the memory."""
    path, tenth = setup.folder / "trades.txt", setup.folder / "tenth.txt"
    mb = ingest_collect.make(path, count) / 1e6
    ingest_collect.make(tenth, max(1, count // TENFOLD))
    peaks: list[float] = []

    def ours(folder: Path) -> float:
        sent = ingest_collect.ours(bootstrap, path, folder)
        peaks.append(sent.peak_mb)
        return sent.seconds

    def bare(_folder: Path) -> float:
        return ingest_collect.bare(bootstrap, path).seconds

    once = ingest_collect.ours(bootstrap, tenth, setup.folder / "collector")
    times = in_turns_per({"ours": ours, "bare": bare}, setup, 1)
    return times, mb, {"memory_tenfold_ratio_collector": max(peaks) / once.peak_mb}


def _add_speeds(
    peers: dict[str, Figures], spark: SparkSession, work: Work, size: Sizes, folder: Path
) -> None:
    """Let the peers that write into PostgreSQL do it for their speed, one after the other."""
    (at_once, *_) = _at_once(DOCUMENTS_AT_ONCE, work.documents)
    speed = ingest_kills.jdbc_rows_per_s(spark, work, folder, at_once)
    peers[ingest_kills.JDBC]["rows_per_s"] = speed
    for how, most in (
        (consumers.EACH, size.waited_for),
        (consumers.POLL, size.documents),
    ):
        peers[how]["rows_per_s"] = ingest_kills.consumer_rows_per_s(work, how, most)


def _engine(folder: Path, bootstrap: str, url: str) -> Engine:
    """Give an engine with a database of its own, and the topics that it is to find."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE engine")
    folder.mkdir()
    ingest_load.fill(bootstrap, ingest_timed.readings, [])
    flows = [Path(ingest_single.__file__), Path(ingest_timed.__file__)]
    return Engine(folder / "home", flows, bootstrap, url.rpartition("/")[0] + "/engine")
