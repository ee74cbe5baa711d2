"""People: customers and their accounts, which change together.

At first as actions tell it, a day at a time: a day has to be over. Later as a batch's files have
it, all at once. In both, what one key is on one day is one version.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any

import pyarrow as pa

from etl_procs import Batch, Transaction
from tpcdi.dataflow.brokers import STAGE as BROKERS
from tpcdi.dataflow.brokers import brokers
from tpcdi.dataflow.customers import ACTIVE, INACTIVE, Customers, customers
from tpcdi.dataflow.forms import CHANGE, DAY, TIME, WHOLE, formed, one_of, or_empty
from tpcdi.dataflow.listing import names_of
from tpcdi.dataflow.messages import alert
from tpcdi.dataflow.outlets import OUTLETS
from tpcdi.dataflow.outlets import day as number_of
from tpcdi.dataflow.phases import Held, Phase, complete, current, finish, has, phases
from tpcdi.dataflow.prospects import STAGE as PROSPECTS
from tpcdi.dataflow.prospects import demographics, known, match, prospects, relate, touched
from tpcdi.dataflow.reference import COMPLETE, status_names, taxes
from tpcdi.dataflow.sources import accounts as account_rows
from tpcdi.dataflow.sources import actions, flow
from tpcdi.dataflow.sources import customers as customer_rows
from tpcdi.dataflow.versions import Image, Versions

STAGE = "people"
READY = (*COMPLETE, BROKERS, PROSPECTS)

accounts = Versions(
    "dimaccount",
    "accountid",
    more="customerid INTEGER NOT NULL, brokerid INTEGER",
    unique="UNIQUE (customerid, iscurrent, sk_accountid)",
)
held_actions, held_customers, held_accounts = map(Held, (actions, customer_rows, account_rows))
enrolled = flow.stream("enrolled", "batch INTEGER NOT NULL")

KINDS = ("NEW", "ADDACCT", "UPDACCT", "UPDCUST", "CLOSEACCT", "INACT")
OF_PERSON = {"cdc_flag": CHANGE, "c_tier": or_empty(WHOLE), "c_dob": or_empty(DAY)}
OF_ACTION = {
    "actiontype": one_of(*KINDS),
    "actionts": TIME,
    **{name: or_empty(WHOLE) for name in ("c_tier", "ca_tax_st", "ca_b_id")},
    "c_dob": or_empty(DAY),
}
OF_CUSTOMER = "SELECT * FROM dimaccount WHERE customerid = ? AND iscurrent = 1"

Row = Mapping[str, Any]


@flow.procedure(
    takes=[known, actions, customer_rows, account_rows],
    reads=[phases, status_names, taxes, brokers.table],
    writes=[
        customers.table,
        accounts.table,
        prospects,
        touched,
        complete,
        *(held.table for held in (held_actions, held_customers, held_accounts)),
    ],
    gives=[
        *(OUTLETS[name] for name in ("dimcustomer", "dimaccount", "prospect", "dimessages")),
        enrolled,
    ],
)
def enrol(tx: Transaction, _said: Batch, acts: Batch, persons: Batch, filed: Batch) -> None:
    """Bring customers and accounts forward."""
    phase = current(tx)
    ready = has(tx, phase, *READY)
    rows = held_actions.admit(
        tx, formed(tx, acts, OF_ACTION), when=ready and not has(tx, phase, STAGE)
    )
    is_told = has(tx, phase, "CustomerMgmt")
    is_due = ready and is_told and has(tx, phase, "Customer", "Account")
    is_due = is_due and not has(tx, phase, STAGE)
    changes = held_customers.admit(tx, formed(tx, persons, OF_PERSON), when=is_due).to_pylist()
    files = held_accounts.admit(
        tx, formed(tx, filed, {"cdc_flag": CHANGE}), when=is_due
    ).to_pylist()
    if phase is None or not ready:
        return
    people = People(tx, phase)
    for day, of_day in groupby(_over(tx, rows, is_told), key=_day):
        people.act(of_day, number_of(day) if phase.batch == 1 else phase.day)
    if is_due:
        people.change(changes, files)
        finish(tx, phase, STAGE)
        tx.emit(enrolled, [{"batch": phase.batch}])


def _over(tx: Transaction, rows: pa.Table, is_complete: bool) -> list[Row]:
    """Give the actions of days that are over, and hold the others."""
    acts: list[Row] = rows.to_pylist()
    if is_complete or not acts:
        return acts
    days = [_day(row) for row in acts]
    whole = days.index(max(days))
    held_actions.put(tx, rows.slice(whole))
    return acts[:whole]


def _time(row: Row) -> str:
    return str(row["actionts"])


def _day(row: Row) -> str:
    return _time(row)[:10]


class People:
    """The customers and accounts that one batch changes."""

    def __init__(self, tx: Transaction, phase: Phase) -> None:
        self.tx = tx
        self.phase = phase
        self._customers = Customers(tx, phase)
        self._brokers: dict[int, int | None] = {}
        """Surrogate keys of those that were looked for, where there are any."""

    def act(self, acts: Iterable[Row], day: int) -> None:
        """Take the actions of a day."""
        of_day = sorted(acts, key=_time)
        new = {row["c_id"] for row in of_day if row["actiontype"] == "NEW"}
        persons: dict[int, Image] = {}
        filed: dict[int, Image] = {}
        left: set[int] = set()
        for row in of_day:
            kind, id_, account = row["actiontype"], row["c_id"], row["ca_id"]
            if kind == "NEW":
                persons[id_] = self._customers.new(row, ACTIVE)
            elif kind in ("UPDCUST", "INACT"):
                before = persons.get(id_) or customers.latest(self.tx, id_)
                if before is None:
                    self._warn("DimCustomer", "Unknown customer", f"C_ID = {id_}")
                    continue
                status = before["status"]
                if kind == "INACT":
                    status = INACTIVE
                    left.add(id_)
                persons[id_] = {**self._customers.changed(before, row), "status": status}
            if account is None:
                if kind.endswith("ACCT"):
                    self._warn("DimAccount", "No account", f"C_ID = {id_}, {kind}")
            elif kind in ("NEW", "ADDACCT"):
                image = _account(row, {"customerid": id_, "status": ACTIVE})
                if self._is_held(image, new):
                    filed[account] = image
            elif kind in ("UPDACCT", "CLOSEACCT"):
                before = filed.get(account) or accounts.latest(self.tx, account)
                if before is None:
                    self._warn("DimAccount", "Unknown account", f"CA_ID = {account}")
                    continue
                if before["customerid"] != id_:
                    data = f"CA_ID = {account}, C_ID = {id_}"
                    self._warn("DimAccount", "Account of another customer", data)
                    continue
                status = INACTIVE if kind == "CLOSEACCT" else before["status"]
                image = {**_account(row, before), "status": status}
                if self._is_held(image, new):
                    filed[account] = image
            else:
                self._warn("DimAccount", "Account not taken", f"CA_ID = {account}, {kind}")
        self._write(persons, filed, day, left)

    def change(self, rows: Iterable[Row], files: Iterable[Row]) -> None:
        """Take what a batch changes; and compare who is a prospect that has changed."""
        names = names_of(self.tx, status_names)
        rows = self._known(held_customers, rows, "c_st_id", names)
        files = self._known(held_accounts, files, "ca_st_id", names)
        persons = {row["c_id"]: self._customers.new(row, names[row["c_st_id"]]) for row in rows}
        for image in self._other_prospects():
            persons.setdefault(image["customerid"], image)
        filed = {}
        for row in files:
            image = {
                "accountid": row["ca_id"],
                "accountdesc": row["ca_name"],
                "taxstatus": row["ca_tax_st"],
                "brokerid": row["ca_b_id"],
                "customerid": row["ca_c_id"],
                "status": names[row["ca_st_id"]],
            }
            if self._is_held(image, persons):
                filed[row["ca_id"]] = image
        self._write(persons, filed, self.phase.day)

    def _known(
        self, held: Held, rows: Iterable[Row], column: str, names: Collection[str]
    ) -> list[Row]:
        """Give rows of a status that is known, and hold the others."""
        known: list[Row] = []
        unknown: list[Row] = []
        for row in rows:
            (known if row[column] in names else unknown).append(row)
        held.put_rows(self.tx, unknown)
        return known

    def _other_prospects(self) -> list[Image]:
        """Give the customers of whom other things are known as prospects."""
        found = self.tx.query(
            # CROSS, or SQLite would go through all customers, and ask of each if it is touched.
            "SELECT dimcustomer.* FROM touched CROSS JOIN dimcustomer USING (match) "
            "WHERE iscurrent = 1"
        )
        relate(self.tx, [row["match"] for row in self.tx.query("SELECT match FROM touched")])
        self.tx.execute("DELETE FROM touched")
        return [
            image
            for image in found
            if any(image[n] != value for n, value in demographics(self.tx, image["match"]).items())
        ]

    def _write(
        self,
        persons: Mapping[int, Image],
        filed: dict[int, Image],
        day: int,
        left: Collection[int] = (),
    ) -> None:
        """Write what is changed on a day: with a customer, all of its accounts. Those of one who is
        inactive now, and was not, or has `left` again, are inactive too.
        """
        before = {id_: customers.latest(self.tx, id_) for id_ in persons}
        keys = self._customers.write(persons.values(), day)
        gone = {
            id_
            for id_, image in persons.items()
            if image["status"] == INACTIVE
            and (id_ in left or (before[id_] or {}).get("status") != INACTIVE)
        }
        matches = {image["match"] for image in before.values() if image}
        relate(self.tx, matches | {match(image) for image in persons.values()})
        for id_ in persons:
            for account in self.tx.query(OF_CUSTOMER, [id_]):
                filed.setdefault(account["accountid"], account)
        accounts.write(self.tx, self._placed(filed.values(), keys, gone), self.phase, day)

    def _placed(
        self, filed: Iterable[Image], keys: dict[int, int], gone: Collection[int]
    ) -> Iterator[Image]:
        """Give accounts with the versions of customer and broker that they have now."""
        for account in filed:
            id_ = account["customerid"]
            if id_ not in keys:
                person = customers.latest(self.tx, id_)
                assert person is not None, "it was there when the account was filed"
                keys[id_] = person["sk_customerid"]
            broker = self._broker(account["brokerid"])
            assert broker is not None, "so was it"
            yield {
                **account,
                "sk_customerid": keys[id_],
                "sk_brokerid": broker,
                "status": INACTIVE if id_ in gone else account["status"],
            }

    def _is_held(self, account: Image, new: Collection[int]) -> bool:
        """Tell if an account's customer, who may be a new one, and its broker are there."""
        id_, broker = account["customerid"], account["brokerid"]
        data = f"CA_ID = {account['accountid']}"
        if id_ not in new and customers.latest(self.tx, id_) is None:
            self._warn("DimAccount", "Unknown customer", f"{data}, C_ID = {id_}")
        elif self._broker(broker) is None:
            named = "" if broker is None else broker
            self._warn("DimAccount", "Unknown broker", f"{data}, B_ID = {named}")
        else:
            return True
        return False

    def _broker(self, id_: int | None) -> int | None:
        """Give the surrogate key of a broker, if it is there."""
        if id_ is None:
            return None
        if id_ not in self._brokers:
            found = brokers.latest(self.tx, id_)
            self._brokers[id_] = found["sk_brokerid"] if found else None
        return self._brokers[id_]

    def _warn(self, source: str, text: str, data: str) -> None:
        alert(self.tx, self.phase, source, text, data)


def _account(row: Row, before: Image) -> Image:
    """Change what a row says of an account; what it says nothing about stays."""
    image = {"accountid": row["ca_id"], "accountdesc": None, "taxstatus": None, "brokerid": None}
    image |= before
    if row["ca_name"] is not None:
        image["accountdesc"] = row["ca_name"] or None
    if row["ca_tax_st"] is not None:
        image["taxstatus"] = _whole(row["ca_tax_st"])
    if row["ca_b_id"] is not None:
        image["brokerid"] = _whole(row["ca_b_id"])
    return image


def _whole(text: str) -> int | None:
    return int(text) if text else None
