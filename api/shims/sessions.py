"""Sessions: one with each engine, opened when it is first asked for, and kept."""

from collections.abc import Iterator

from api.shims import Shim, Whole
from api.shims.files import Files, Folder
from api.shims.postgres import Postgres
from migrations.warehouse import Warehouse


class Sessions:
    """The sessions of an island."""

    def __init__(self, memory_mb: int) -> None:
        self._memory_mb = memory_mb
        self._warehouses: dict[Warehouse, Whole] = {}
        self._folders: dict[Folder, Shim] = {}

    def __iter__(self) -> Iterator[Shim]:
        return iter([*self._warehouses.values(), *self._folders.values()])

    def warehouse(self, place: Warehouse) -> Whole:
        """Give the one with a warehouse."""
        if place not in self._warehouses:
            self._warehouses[place] = Postgres(place)
        return self._warehouses[place]

    def folder(self, place: Folder) -> Shim:
        """Give the one with a folder of files."""
        if place not in self._folders:
            self._folders[place] = Files(place, self._memory_mb)
        return self._folders[place]

    def cancel(self) -> None:
        """Have what any of them does end soon. Another thread may ask for it."""
        for session in self:
            session.cancel()

    def close(self) -> None:
        """End all of them."""
        for session in self:
            session.close()
        self._warehouses.clear()
        self._folders.clear()
