"""A talent show, live: each vote is validated, counted and ranked, and the last one has to leave.

S-Store's leaderboard: three procedures, one vote a batch, and their order matters. A contestant
who is removed gives the votes back, so the vote that comes next must see that.
"""

from etl_procs import Batch, Dataflow, Transaction, Wire, by_count, last_tuples

CONTESTANTS = 100
VOTES_A_REMOVAL = 1_000

flow = Dataflow("voter")

votes = flow.stream(
    "votes",
    "phone INTEGER NOT NULL, contestant INTEGER NOT NULL",
    batches=by_count(1),
    wire=Wire(partitions=1),  # one order, and so one outcome
)
valid = flow.stream("valid", "phone INTEGER NOT NULL, contestant INTEGER NOT NULL")
counted = flow.stream("counted", "contestant INTEGER NOT NULL")

contestants = flow.table(
    "contestants",
    "contestant INTEGER PRIMARY KEY, name TEXT NOT NULL",
    rows=[(number, f"Contestant {number}") for number in range(1, CONTESTANTS + 1)],
)
kept = flow.table(
    "votes",
    "phone INTEGER PRIMARY KEY, contestant INTEGER NOT NULL, UNIQUE (contestant, phone)",
)
counts = flow.table(
    "counts",
    "contestant INTEGER PRIMARY KEY, votes INTEGER NOT NULL, UNIQUE (votes, contestant)",
    rows=[(number, 0) for number in range(1, CONTESTANTS + 1)],
)
totals = flow.table("totals", "votes INTEGER NOT NULL", rows=[(0,)])
leaders = flow.table(
    "leaders",
    "kind TEXT NOT NULL, place INTEGER NOT NULL, contestant INTEGER NOT NULL, "
    "votes INTEGER NOT NULL, PRIMARY KEY (kind, place)",
)

recent = flow.window(
    "recent", "phone INTEGER NOT NULL, contestant INTEGER NOT NULL", last_tuples(100)
)
trending = flow.aggregate("trending", recent, by="contestant", votes="count(*)")

removed = flow.outlet(
    "removed", "total INTEGER NOT NULL, contestant INTEGER NOT NULL, votes INTEGER NOT NULL"
)

TOP = """
    INSERT INTO leaders
    SELECT 'top', row_number() OVER (ORDER BY votes DESC, contestant), contestant, votes
    FROM counts ORDER BY votes DESC, contestant LIMIT 3"""
BOTTOM = """
    INSERT INTO leaders
    SELECT 'bottom', row_number() OVER (ORDER BY votes, contestant), contestant, votes
    FROM counts ORDER BY votes, contestant LIMIT 3"""
TRENDING = """
    INSERT INTO leaders
    SELECT 'trending', row_number() OVER (ORDER BY trending.votes DESC, contestant),
        contestant, trending.votes
    FROM trending JOIN contestants USING (contestant)
    ORDER BY trending.votes DESC, contestant LIMIT 3"""
LAST = "SELECT contestant, votes FROM counts ORDER BY votes, contestant LIMIT 2"
REMOVE = (
    "DELETE FROM votes WHERE contestant = :contestant",
    "DELETE FROM counts WHERE contestant = :contestant",
    "DELETE FROM leaders WHERE contestant = :contestant",
    "DELETE FROM contestants WHERE contestant = :contestant",
)


@flow.procedure(takes=votes, reads=[contestants], writes=[kept], gives=[valid])
def validate(tx: Transaction, batch: Batch) -> None:
    """Keep a vote for somebody who is in the show, from a phone that has no vote there."""
    good = []
    for vote in batch.rows():
        if not tx.query("SELECT 1 FROM contestants WHERE contestant = :contestant", vote):
            tx.reject(vote, "no such contestant")
        elif not tx.execute(
            "INSERT INTO votes VALUES (:phone, :contestant) ON CONFLICT DO NOTHING", vote
        ):
            tx.reject(vote, "this phone has voted already")
        else:
            good.append(vote)
    tx.emit(valid, good)


@flow.procedure(
    takes=valid,
    reads=[contestants],
    writes=[counts, totals, leaders],
    gives=[recent, counted],
)
def maintain(tx: Transaction, batch: Batch) -> None:
    """Count the vote, and rank: who leads, who is last, who leads among the last 100 votes."""
    for vote in batch.rows():
        tx.execute("UPDATE counts SET votes = votes + 1 WHERE contestant = :contestant", vote)
        tx.execute("UPDATE totals SET votes = votes + 1")
        tx.emit(recent, [vote])
        tx.execute("DELETE FROM leaders")
        for ranking in (TOP, BOTTOM, TRENDING):
            tx.execute(ranking)
        tx.emit(counted, [{"contestant": vote["contestant"]}])


@flow.procedure(takes=counted, writes=[contestants, kept, counts, totals, leaders], gives=[removed])
def remove(tx: Transaction, batch: Batch) -> None:
    """After every thousandth vote, remove the last one; who voted for them may vote again."""
    for _vote in batch.rows():
        (total,) = tx.query("SELECT votes FROM totals")
        if total["votes"] % VOTES_A_REMOVAL:
            continue
        last = tx.query(LAST)
        if len(last) > 1:  # who is alone has won
            for statement in REMOVE:
                tx.execute(statement, last[0])
            tx.emit(removed, [{"total": total["votes"], **last[0]}])


@flow.call(
    arguments="kind TEXT NOT NULL",
    returns="place INTEGER NOT NULL, contestant INTEGER NOT NULL, votes INTEGER NOT NULL",
    reads=[leaders],
)
def standing(tx: Transaction, kind: str) -> list[dict[str, int]]:
    """Tell who is where: among the top, the bottom or the trending."""
    return tx.query(
        "SELECT place, contestant, votes FROM leaders WHERE kind = ? ORDER BY place", [kind]
    )
