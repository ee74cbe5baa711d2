"""Pages: the rest of an answer, kept for whoever has asked, and read on with a cursor.

The worker that answers writes the rest into a file of the data folder, so all pages are of one
cut, whatever is pushed, merged or committed since. A file's name is what a cursor cannot be
guessed by; what is in it says whose it is.
"""

import json
import secrets
import shutil
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from api.answer import Head
from api.errors import NoLonger, QueryUnknown, TooLarge
from api.formats import document, values
from api.values import dump
from headrace.clock import Clock

CURSOR = r"[A-Za-z0-9_-]{32}\.[0-9]{1,9}"
ABOUT = b"headrace.pages"
"""The key of the metadata that say whose an answer is, and what is known of it."""
WHOLE, BEGUN = ".arrow", ".begun"
NAME_BYTES = 24
MB = 2**20


class Keep(NamedTuple):
    """What a worker is to do with an answer that is asked for in pages."""

    folder: Path
    name: str
    rows: int
    """Of one page."""
    asker: str
    bytes_max: int
    """Of all that is kept of all answers."""


class Kept:
    """An answer that is being cut into pages: the first is told, the others are kept."""

    def __init__(self, keep: Keep, head: Head) -> None:
        self._keep = keep
        self._head = head
        self._rows = 0
        self._has_more = False

    def first(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Give the first page's rows, and keep all others before it ends."""
        pages = _pages(batches, self._keep.rows)
        for batch in next(pages, []):
            self._rows += batch.num_rows
            yield batch
        second = next(pages, None)
        if second is not None:
            self._write(second, pages)
            self._has_more = True

    def end(self) -> dict[str, Any]:
        """Tell what the answer ends with."""
        return _end(self._rows, f"{self._keep.name}.0" if self._has_more else None)

    def _write(self, second: list[pa.RecordBatch], pages: Iterator[list[pa.RecordBatch]]) -> None:
        keep, about = self._keep, {"asker": self._keep.asker, "head": document(self._head)}
        schema = self._head.schema.with_metadata({ABOUT: dump(about)})
        path = keep.folder / f"{keep.name}{BEGUN}"
        with path.open("xb") as file, pa.ipc.new_file(file, schema) as writer:
            for page in chain([second], pages):
                writer.write_batch(pa.concat_batches(page))
                file.flush()
                _make_room(keep, path)
        path.rename(path.with_suffix(WHOLE))


class Pages:
    """The pages that are kept, in a folder that is this process's alone."""

    def __init__(self, folder: Path, mb_max: int, keep_s: int, clock: Clock) -> None:
        self._folder = folder
        self._bytes_max = mb_max * MB
        self._keep_s = keep_s
        self._clock = clock
        self.close()  # who knows the cursors of before has the answers of before no more
        folder.mkdir(mode=0o700, parents=True)

    def keep(self, rows: int, asker: str) -> Keep:
        """Say how the rest of an answer is to be kept."""
        self._drop_expired()
        name = secrets.token_urlsafe(NAME_BYTES)
        return Keep(self._folder, name, rows, asker, self._bytes_max)

    def drop_begun(self, keep: Keep) -> None:
        """Drop what a worker has begun and not ended."""
        (self._folder / f"{keep.name}{BEGUN}").unlink(missing_ok=True)

    def read(self, cursor: str, asker: str) -> bytes:
        """Give a page, as the answer that it is a part of would be given."""
        self._drop_expired()
        name, _, number = cursor.partition(".")
        try:
            with (
                pa.OSFile(str(self._folder / f"{name}{WHOLE}")) as file,
                pa.ipc.open_file(file) as reader,
            ):
                about = json.loads(reader.schema.metadata[ABOUT])
                if about["asker"] != asker or int(number) >= reader.num_record_batches:
                    raise QueryUnknown(
                        "there is no page of this cursor",
                        hint="Send the cursor that stands in an answer's end as `next`, with the "
                        "key that the query was asked with.",
                    )
                page = reader.get_batch(int(number))
                is_last = int(number) + 1 == reader.num_record_batches
        except FileNotFoundError:
            raise NoLonger(
                "the pages of this cursor are not kept any more",
                hint="Ask the query again. How long pages are kept say api.pages_keep_s and "
                "api.pages_mb_max; none outlives the API's process.",
            ) from None
        end = _end(page.num_rows, None if is_last else f"{name}.{int(number) + 1}")
        return dump({**about["head"], "rows": values(page), **end})

    def close(self) -> None:
        """Drop all of them."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _drop_expired(self) -> None:
        oldest = self._clock.now().timestamp() - self._keep_s
        for made, _, path in _files(self._folder):
            if made < oldest and path.suffix == WHOLE:
                path.unlink(missing_ok=True)


def _pages(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[list[pa.RecordBatch]]:
    """Cut batches into pages of so many rows; there is none without rows."""
    page: list[pa.RecordBatch] = []
    left = rows
    for batch in batches:
        begin = 0
        while begin < batch.num_rows:
            page.append(batch.slice(begin, left))
            begin += page[-1].num_rows
            left -= page[-1].num_rows
            if not left:
                yield page
                page, left = [], rows
    if page:
        yield page


def _make_room(keep: Keep, mine: Path) -> None:
    """Drop the oldest answers until all together are small enough; other workers do so, too."""
    found = _files(keep.folder)
    size = sum(size for _, size, _ in found)
    for _, of, path in sorted(found):
        if size <= keep.bytes_max:
            return
        if path.suffix == WHOLE:
            path.unlink(missing_ok=True)
            size -= of
    if size > keep.bytes_max:
        raise TooLarge(
            f"the pages of the answer take more than {keep.bytes_max // MB} MB",
            hint="Filter or aggregate, or ask for lines, CSV or Arrow by the header Accept, of any "
            "size; the limit is api.pages_mb_max.",
        )


def _files(folder: Path) -> list[tuple[float, int, Path]]:
    """List what is kept: when it was last written, its size, and where. Others remove some."""
    found = []
    for path in folder.iterdir():
        try:
            about = path.stat()
        except FileNotFoundError:
            continue
        found.append((about.st_mtime, about.st_size, path))
    return found


def _end(rows: int, cursor: str | None) -> dict[str, Any]:
    return {"end": {"rows": rows, **({} if cursor is None else {"next": cursor})}}
