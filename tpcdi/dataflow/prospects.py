"""Prospects: whom marketing knows, and which of them are customers."""

import json
from collections.abc import Collection, Mapping
from operator import itemgetter

from etl_procs import Batch, Transaction
from tpcdi.dataflow.brokers import employed
from tpcdi.dataflow.messages import MESSAGES, say
from tpcdi.dataflow.outlets import OUTLETS, shown, stored, table
from tpcdi.dataflow.phases import Held, Phase, complete, current, finish, has, phases
from tpcdi.dataflow.sources import flow
from tpcdi.dataflow.sources import prospects as source
from tpcdi.dataflow.versions import Image

STAGE = "prospects"
data_of = itemgetter(*source.columns.names)
MATCHED = ("lastname", "firstname", "addressline1", "addressline2", "postalcode")
DEMOGRAPHICS = ("agencyid", "creditrating", "networth", "marketingnameplate")

prospects = flow.table(
    "prospect",
    f"{stored('prospect')}, match TEXT, PRIMARY KEY (agencyid), UNIQUE (match, agencyid)",
)
touched = flow.table("touched", "match TEXT PRIMARY KEY")
"""The matches of prospects that are new or other since customers were last compared with them."""
counts = flow.table(
    "prospect_counts",
    "batch INTEGER PRIMARY KEY, source INTEGER NOT NULL, new INTEGER NOT NULL, "
    "other INTEGER NOT NULL",
)
held = Held(source)
known = flow.stream("known", "batch INTEGER NOT NULL")

PLACES = ", ".join(f":{name}" for name in prospects.columns.names)
THESE = "SELECT * FROM prospect WHERE agencyid IN (SELECT value FROM json_each(?))"
RECORDED = """\
UPDATE prospect SET sk_recorddateid = ? WHERE agencyid IN (SELECT value FROM json_each(?))"""
PUT = f"INSERT OR REPLACE INTO prospect VALUES ({PLACES})"
COUNT = """\
INSERT INTO prospect_counts VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE
SET source = source + excluded.source, new = new + excluded.new, other = other + excluded.other"""


@flow.procedure(
    takes=[employed, source],
    reads=[phases],
    writes=[prospects, touched, counts, held.table, complete],
    gives=[OUTLETS["prospect"], MESSAGES, known],
)
def canvass(tx: Transaction, _said: Batch, batch: Batch) -> None:
    """Enter the prospects of a file; those that it lacks stay."""
    phase = current(tx)
    rows = held.admit(
        tx, batch.table, when=has(tx, phase, "Date") and not has(tx, phase, STAGE)
    ).to_pylist()
    if phase is None:
        return
    if rows:
        _enter(tx, phase, rows)
    if has(tx, phase, "Date", "Prospect") and not has(tx, phase, STAGE):
        _count(tx, phase)
        finish(tx, phase, STAGE)
        tx.emit(known, [{"batch": phase.batch}])


def _enter(tx: Transaction, phase: Phase, rows: list[Image]) -> None:
    ids = [json.dumps(list({row["agencyid"] for row in rows}))]
    known = {row["agencyid"]: row for row in tx.query(THESE, ids)}
    changed, matches = [], set()
    new = 0
    for row in rows:
        before = known.get(row["agencyid"])
        if before is not None and data_of(before) == data_of(row):
            continue
        new += before is None
        now = {
            **row,
            "sk_recorddateid": phase.day,
            "sk_updatedateid": phase.day,
            "batchid": phase.batch,
            "iscustomer": before["iscustomer"] if before else 0,
            "marketingnameplate": nameplate(row),
            "match": match(row),
        }
        matches |= {now["match"], before["match"] if before else None}
        known[row["agencyid"]] = now
        changed.append(now)
    tx.executemany(PUT, changed)
    tx.executemany("INSERT OR IGNORE INTO touched VALUES (?)", zip(matches - {None}))
    tx.execute(RECORDED, [phase.day, *ids])
    now_known = tx.table(THESE, ids)
    entered = dict(zip(now_known.column_names, now_known.columns, strict=True))
    tx.emit(OUTLETS["prospect"], table("prospect", **entered))
    tx.execute(COUNT, [phase.batch, len(rows), new, len(changed) - new])


def _count(tx: Transaction, phase: Phase) -> None:
    found = tx.query(
        "SELECT source, new, other FROM prospect_counts WHERE batch = ?", [phase.batch]
    )
    numbers = found[0] if found else {"source": 0, "new": 0, "other": 0}
    if phase.batch > 1:
        say(tx, phase, "Status", "Prospect", "Source rows", numbers["source"])
    say(tx, phase, "Status", "Prospect", "Inserted rows", numbers["new"])
    if phase.batch > 1:
        say(tx, phase, "Status", "Prospect", "Updated rows", numbers["other"])


def relate(tx: Transaction, matches: Collection[str | None]) -> None:
    """Keep it true which of the prospects of these matches are customers."""
    related = []
    for one in matches:
        is_customer = bool(
            tx.query(
                "SELECT 1 FROM dimcustomer WHERE match = ? AND iscurrent = 1 AND status = 'Active'",
                [one],
            )
        )
        for row in tx.query(
            "SELECT * FROM prospect WHERE match = ? AND iscustomer <> ?", [one, is_customer]
        ):
            tx.execute(
                "UPDATE prospect SET iscustomer = ? WHERE agencyid = ?",
                [is_customer, row["agencyid"]],
            )
            related.append(shown("prospect", row | {"iscustomer": is_customer}))
    tx.emit(OUTLETS["prospect"], related)


def demographics(tx: Transaction, matched: str | None) -> Image:
    """Give what is known of a customer as a prospect: of several, the first agency's."""
    found = tx.query(
        f"SELECT {', '.join(DEMOGRAPHICS)} FROM prospect WHERE match = ? ORDER BY agencyid LIMIT 1",
        [matched],
    )
    return found[0] if found else dict.fromkeys(DEMOGRAPHICS)


def match(row: Mapping[str, object]) -> str | None:
    """Give that by which a customer and a prospect are the same: None if it lacks a part.

    The second line of an address may be missing.
    """
    parts = [row[name] for name in MATCHED]
    parts[3] = parts[3] or ""
    return None if None in parts else "\x1f".join(str(part).upper() for part in parts)


def nameplate(row: Mapping[str, int | None]) -> str | None:
    """Give the tags that marketing goes by."""

    def above(name: str, limit: int) -> bool:
        value = row[name]
        return value is not None and value > limit

    def below(name: str, limit: int) -> bool:
        value = row[name]
        return value is not None and value < limit

    tags = {
        "HighValue": above("networth", 1_000_000) or above("income", 200_000),
        "Expenses": above("numberchildren", 3) or above("numbercreditcards", 5),
        "Boomer": above("age", 45),
        "MoneyAlert": below("income", 50_000)
        or below("creditrating", 600)
        or below("networth", 100_000),
        "Spender": above("numbercars", 3) or above("numbercreditcards", 7),
        "Inherited": below("age", 25) and above("networth", 1_000_000),
    }
    return "+".join(tag for tag, applies in tags.items() if applies) or None
