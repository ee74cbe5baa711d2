"""A talent show counts its votes: a known contestant, and one vote a phone."""

from etl_procs import Batch, Dataflow, Transaction, by_count

flow = Dataflow("leaderboard")

votes = flow.stream(
    "votes",
    "phone TEXT NOT NULL, contestant INTEGER NOT NULL",
    batches=by_count(1_000, linger_s=0.1),
)

contestants = flow.table(
    "contestants",
    "contestant INTEGER PRIMARY KEY, name TEXT NOT NULL",
    rows=[(1, "Edwina"), (2, "Tabatha"), (3, "Kelly"), (4, "Jessie"), (5, "Alana"), (6, "Ruth")],
)

ballots = flow.table("ballots", "phone TEXT PRIMARY KEY, contestant INTEGER NOT NULL")

counted = flow.outlet("votes", "phone TEXT NOT NULL, contestant INTEGER NOT NULL, name TEXT")


@flow.procedure(takes=votes, reads=[contestants], writes=[ballots], gives=[counted])
def count(tx: Transaction, batch: Batch) -> None:
    """Keep the valid votes, reject the others, and send the valid ones to the warehouse."""
    valid = []
    for vote in batch.rows():
        known = tx.query("SELECT name FROM contestants WHERE contestant = :contestant", vote)
        if not known:
            tx.reject(vote, "no such contestant")
        elif not tx.execute(
            "INSERT INTO ballots VALUES (:phone, :contestant) ON CONFLICT DO NOTHING", vote
        ):
            tx.reject(vote, "this phone has voted already")
        else:
            valid.append({**vote, **known[0]})
    tx.emit(counted, valid)
