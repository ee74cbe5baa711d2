"""`headrace reset`: delete the data folder."""

from headrace.cli import airflow
from headrace.cli.asking import confirmed
from headrace.cli.command import Command, Context, argument
from headrace.cli.stack import CLOCK, LOCK_WAIT_S, wait_for_former
from headrace.errors import Exit, Refused
from headrace.local import lock
from headrace.local.home import Home


def reset(context: Context) -> int:
    """Delete the data folder, after asking."""
    home = Home(context.config.home)
    if not home.root.exists():
        print(f"There is no data folder {home.root}.")
        return Exit.OK
    home.require_ours()
    home.run.mkdir(exist_ok=True)
    held = lock.take_within(home.supervisor_lock, LOCK_WAIT_S, CLOCK)
    if held is None:
        raise Refused(
            f"Headrace is running in {home.root}", hint="Stop it first with `headrace down`."
        )
    if lock.is_held(home.part_lock(airflow.NAME)):
        raise Refused(f"Airflow keeps its data in {home.root}", hint="End it first, with Ctrl-C.")
    if not context.arguments.yes and not _confirmed(home):
        print("Nothing was deleted.")
        return Exit.REFUSED
    wait_for_former(home)
    home.delete()
    print(f"{home.root} is deleted.")
    return Exit.OK


def _confirmed(home: Home) -> bool:
    question = f"Delete {home.root}, with the broker's log, the warehouse and the core's state?"
    return confirmed(f"delete {home.root}", question)


COMMANDS = [
    Command(
        name="reset",
        summary="delete the data folder, after asking",
        description="Delete the data folder with all that it holds: the broker's log, PostgreSQL's "
        "data, the core's state, ports, secrets and logs. Only while the stack is down.",
        examples=("headrace reset", "headrace reset --yes --home /tmp/trial"),
        run=reset,
        arguments=(argument("--yes", action="store_true", help="do not ask"),),
    )
]
