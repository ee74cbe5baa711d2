"""Loading: the dataflows that a user's files define."""

import importlib.util
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from etl_procs.dataflow import Dataflow
from etl_procs.errors import line_of
from etl_procs.model import Stream
from headrace.errors import DefinitionError, HeadraceError


def load(paths: Sequence[Path]) -> dict[str, Dataflow]:
    """Import each file and give the dataflows in it, checked, by name."""
    if not paths:
        raise DefinitionError(
            "no dataflow is configured",
            hint='Name the files that define them: flows = ["my_flow.py"] in headrace.toml, '
            "or --flow my_flow.py.",
        )
    found: dict[str, Dataflow] = {}
    tables: dict[str, str] = {}
    for path in paths:
        for dataflow in _dataflows(path):
            if dataflow.name in found:
                raise DefinitionError(
                    f"{path}: dataflow {dataflow.name} is defined twice",
                    hint="Give one of them another name.",
                )
            dataflow.check()
            found[dataflow.name] = dataflow
            for table in (*dataflow.tables, *dataflow.windows, *dataflow.aggregates):
                if tables.setdefault(table, dataflow.name) != dataflow.name:
                    raise DefinitionError(
                        f"{path}: table {table} is declared by {tables[table]} "
                        f"and by {dataflow.name}, and tables are shared",
                        hint="Rename one; or declare it once and import it from there.",
                    )
    for dataflow in found.values():
        _check_partitions(dataflow, tables, found)
    return found


def _check_partitions(
    dataflow: Dataflow, owners: Mapping[str, str], found: Mapping[str, Dataflow]
) -> None:
    """Refuse tables of a dataflow that has other partitions: they are not where this one runs."""
    for routine in dataflow.routines:
        for table in (*routine.reads, *routine.writes):
            owner = found[owners.get(table.name, dataflow.name)]
            if owner.partitions != dataflow.partitions:
                raise DefinitionError(
                    f"{dataflow.name}.{routine.name} uses table {table.name} of dataflow "
                    f"{owner.name}, which has {owner.partitions} partitions, and {dataflow.name} "
                    f"has {dataflow.partitions}",
                    hint="Give both the same partitions, or each its own table.",
                )


def _dataflows(path: Path) -> list[Dataflow]:
    spec = importlib.util.spec_from_file_location(f"headrace_flow_{path.stem}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise DefinitionError(
            f"{path} is not a Python file that is there",
            hint="Name the .py file that defines the dataflow.",
        )
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except HeadraceError as error:
        raise type(error)(f"{line_of(str(path), error)}: {error.what}", hint=error.hint) from error
    except Exception as error:
        raise DefinitionError(
            f"{line_of(str(path), error)}: {type(error).__name__}: {error}",
            hint="Mend the file; it must be importable.",
        ) from error
    flows = [value for value in vars(module).values() if isinstance(value, Dataflow)]
    if not flows:
        raise DefinitionError(
            f"{path} defines no dataflow",
            hint='Make one at the top level of the file: flow = Dataflow("my_flow").',
        )
    return flows


def stream_named(dataflows: Mapping[str, Dataflow], name: str) -> Stream:
    """Find a stream by its name, or by dataflow.stream where several have that name."""
    streams = [stream for flow in dataflows.values() for stream in flow.borders]
    found = [stream for stream in streams if name in (stream.name, stream.topic)]
    if len(found) != 1:
        raise DefinitionError(
            f"{'no stream is' if not found else 'several streams are'} called {name}",
            hint="Use one of: " + ", ".join(stream.topic for stream in streams),
        )
    return found[0]
