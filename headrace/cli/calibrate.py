"""`headrace calibrate`: the rates by which the query island chooses its plans."""

import json

from headrace.cli import addresses
from headrace.cli.command import Command, Context
from headrace.clock import SystemClock
from headrace.errors import Exit
from headrace.local.home import Home


def calibrate(context: Context) -> int:
    """Measure them against the first warehouse, and keep them in the data folder."""
    from api import costs
    from api.calibrate import Calibration
    from migrations.warehouse import warehouses

    config = addresses.warehouse(context.config)
    home = Home(config.home)
    home.create()
    place = warehouses(config)[0]
    calibration = Calibration(place, SystemClock())
    try:
        measured = costs.written(calibration.rates())
    finally:
        calibration.close()
    home.rates.write_text(json.dumps(measured, indent=2) + "\n", encoding="utf-8")
    for name, value in measured.items():
        print(f"{name}  {value:.4f}")
    print(f"kept in {home.rates}; the API takes them from its next start on")
    return Exit.OK


COMMANDS = [
    Command(
        name="calibrate",
        summary="measure how fast this machine and its warehouse are, for the choice of plans",
        description="Measure what shipping, fetching and reading rows takes between this machine "
        "and the first warehouse, in some seconds and temporary tables, and keep it in the data "
        "folder: by it the query island chooses how queries are answered.",
        examples=("headrace calibrate",),
        run=calibrate,
    )
]
