"""The sources: each kind of file is a stream, and what the loader says about them another.

A stream has one partition: what is in a file stays in its order. Of files that have two columns
more in the increments (what was done, and a number), there are two streams.
"""

import re
from typing import NamedTuple

from etl_procs import Clean, Dataflow, Stream, Wire, by_count, delimited, xml
from etl_procs.wire import Format
from tpcdi.schema import PERSON, TABLES

flow = Dataflow("tpcdi")

BATCHES = by_count(50_000, linger_s=0.05)
PIPES, COMMAS = delimited("|"), delimited(",")
CDC = "cdc_flag TEXT NOT NULL, cdc_dsn INTEGER NOT NULL, "


def _stream(name: str, columns: str, format_: Format, clean: Clean | None = None) -> Stream:
    wire = Wire(format_, partitions=1, clean=clean)
    return flow.stream(name, columns, batches=BATCHES, wire=wire)


def _verbatim(name: str, table: str) -> Stream:
    """Declare a file that has the columns of a table; what Spark has no type for is a text."""
    columns = re.sub(r"DATE|BOOLEAN|NUMERIC\(\d,\d\)", "TEXT", TABLES[table].columns)
    return _stream(name, columns, PIPES)


marks = flow.stream(
    "marks", "batch INTEGER NOT NULL, source TEXT NOT NULL, day TEXT", batches=BATCHES
)
"""A phase begins (`BatchDate`, with its day), a source is complete, a phase ends (`Phase`)."""
observed = flow.stream(
    "observed",
    "at TEXT NOT NULL, batch INTEGER NOT NULL, source TEXT, text TEXT NOT NULL, "
    "type TEXT NOT NULL, data TEXT",
    batches=BATCHES,
)
"""What the loader has seen in the warehouse: validation, visibility, the end of a phase."""

dates, times = _verbatim("dates", "dimdate"), _verbatim("times", "dimtime")
industries, statuses = _verbatim("industries", "industry"), _verbatim("statuses", "statustype")
tax_rates = _verbatim("tax_rates", "taxrate")
trade_types = _stream(
    "trade_types",
    "tt_id TEXT NOT NULL, tt_name TEXT NOT NULL, tt_is_sell INTEGER NOT NULL, "
    "tt_is_mrkt INTEGER NOT NULL",
    PIPES,
)
employees = _stream(
    "employees",
    """\
    employeeid INTEGER NOT NULL, managerid INTEGER, firstname TEXT NOT NULL,
    lastname TEXT NOT NULL, middleinitial TEXT, jobcode INTEGER, branch TEXT, office TEXT,
    phone TEXT""",
    COMMAS,
)
finwire = _stream("finwire", "line TEXT NOT NULL", delimited("\x1f"))
"""A record has the columns of its type: the procedure takes it apart."""

prospects = _stream("prospects", f"agencyid TEXT NOT NULL, {PERSON}", COMMAS)

NAME, ADDRESS, CONTACT, TAX = (
    f"Customer/{part}" for part in ("Name", "Address", "ContactInfo", "TaxInfo")
)
PHONE_PARTS = {
    f"c_{part}_{number}": f"{CONTACT}/C_PHONE_{number}/C_{element}"
    for number in (1, 2, 3)
    for part, element in (
        ("ctry", "CTRY_CODE"),
        ("area", "AREA_CODE"),
        ("local", "LOCAL"),
        ("ext", "EXT"),
    )
}
ACTION = {
    "c_tax_id": "Customer/@C_TAX_ID",
    "c_gndr": "Customer/@C_GNDR",
    "c_tier": "Customer/@C_TIER",
    "c_dob": "Customer/@C_DOB",
    **{f"c_{name}": f"{NAME}/C_{name.upper()}" for name in ("l_name", "f_name", "m_name")},
    **{
        f"c_{name}": f"{ADDRESS}/C_{name.upper()}"
        for name in ("adline1", "adline2", "zipcode", "city", "state_prov", "ctry")
    },
    "c_email_1": f"{CONTACT}/C_PRIM_EMAIL",
    "c_email_2": f"{CONTACT}/C_ALT_EMAIL",
    **PHONE_PARTS,
    "c_lcl_tx_id": f"{TAX}/C_LCL_TX_ID",
    "c_nat_tx_id": f"{TAX}/C_NAT_TX_ID",
    "ca_tax_st": "Customer/Account/@CA_TAX_ST",
    "ca_b_id": "Customer/Account/CA_B_ID",
    "ca_name": "Customer/Account/CA_NAME",
}
"""All texts: an empty one says that there is no value any more, an absent one nothing."""
actions = _stream(
    "actions",
    "actiontype TEXT NOT NULL, actionts TEXT NOT NULL, c_id INTEGER NOT NULL, ca_id INTEGER, "
    + ", ".join(f"{name} TEXT" for name in ACTION),
    xml(
        "TPCDI:Action",
        actiontype="@ActionType",
        actionts="@ActionTS",
        c_id="Customer/@C_ID",
        ca_id="Customer/Account/@CA_ID",
        **ACTION,
    ),
)
customers = _stream(
    "customers",
    f"""\
    {CDC} c_id INTEGER NOT NULL, c_tax_id TEXT, c_st_id TEXT NOT NULL, c_l_name TEXT, c_f_name TEXT,
    c_m_name TEXT, c_gndr TEXT, c_tier TEXT, c_dob TEXT, c_adline1 TEXT, c_adline2 TEXT,
    c_zipcode TEXT, c_city TEXT, c_state_prov TEXT, c_ctry TEXT,
    {", ".join(f"{name} TEXT" for name in PHONE_PARTS)},
    c_email_1 TEXT, c_email_2 TEXT, c_lcl_tx_id TEXT, c_nat_tx_id TEXT""",
    PIPES,
)
accounts = _stream(
    "accounts",
    f"""\
    {CDC} ca_id INTEGER NOT NULL, ca_b_id INTEGER NOT NULL, ca_c_id INTEGER NOT NULL,
    ca_name TEXT, ca_tax_st INTEGER, ca_st_id TEXT NOT NULL""",
    PIPES,
)

TRADE = """\
    t_id INTEGER NOT NULL, t_dts TEXT NOT NULL, t_st_id TEXT NOT NULL, t_tt_id TEXT NOT NULL,
    t_is_cash INTEGER NOT NULL, t_s_symb TEXT NOT NULL, t_qty INTEGER NOT NULL,
    t_bid_price REAL NOT NULL, t_ca_id INTEGER NOT NULL, t_exec_name TEXT NOT NULL,
    t_trade_price REAL, t_chrg REAL, t_comm REAL, t_tax REAL"""
trades = _stream("trades", TRADE, PIPES)
trade_changes = _stream("trade_changes", CDC + TRADE, PIPES)
trade_events = _stream(
    "trade_events",
    "th_t_id INTEGER NOT NULL, th_dts TEXT NOT NULL, th_st_id TEXT NOT NULL",
    PIPES,
)

CASH = "ct_ca_id INTEGER NOT NULL, ct_dts TEXT NOT NULL, ct_amt REAL NOT NULL, ct_name TEXT"
cash = _stream("cash", CASH, PIPES)
cash_changes = _stream("cash_changes", CDC + CASH, PIPES)

HOLDING = """\
    hh_h_t_id INTEGER NOT NULL, hh_t_id INTEGER NOT NULL,
    hh_before_qty INTEGER NOT NULL, hh_after_qty INTEGER NOT NULL"""
holdings = _stream("holdings", HOLDING, PIPES)
holding_changes = _stream("holding_changes", CDC + HOLDING, PIPES)

WATCH = """\
    w_c_id INTEGER NOT NULL, w_s_symb TEXT NOT NULL, w_dts TEXT NOT NULL, w_action TEXT NOT NULL"""
watches = _stream("watches", WATCH, PIPES)
watch_changes = _stream("watch_changes", CDC + WATCH, PIPES)

MARKET = """\
    dm_date TEXT NOT NULL, dm_s_symb TEXT NOT NULL, dm_close REAL NOT NULL,
    dm_high REAL NOT NULL, dm_low REAL NOT NULL, dm_vol INTEGER NOT NULL"""
market = _stream("market", MARKET, PIPES)
market_changes = _stream("market_changes", CDC + MARKET, PIPES)

answers = _stream(
    "answers",
    "dataset TEXT NOT NULL, batchid TEXT, date TEXT, attribute TEXT NOT NULL, value TEXT, "
    "dvalue TEXT",
    COMMAS,
    Clean(
        columns=("dataset", "batchid", "date", "attribute", "value", "dvalue"),
        where=lambda row: row["dataset"] != "DataSet",
    ),
)


class Source(NamedTuple):
    """A kind of file: its name in a phase's folder, and the streams that it goes into.

    Where there is none, the first phase, or the increments, have no such file.
    """

    files: str
    first: Stream | None
    then: Stream | None = None

    @property
    def name(self) -> str:
        """What a mark calls it."""
        return self.files.partition(".")[0].partition("?")[0]


SOURCES = (
    Source("Date.txt", dates),
    Source("Time.txt", times),
    Source("StatusType.txt", statuses),
    Source("TaxRate.txt", tax_rates),
    Source("TradeType.txt", trade_types),
    Source("Industry.txt", industries),
    Source("HR.csv", employees),
    Source("FINWIRE????Q?", finwire),
    Source("Prospect.csv", prospects, prospects),
    Source("CustomerMgmt.xml", actions),
    Source("Customer.txt", None, customers),
    Source("Account.txt", None, accounts),
    Source("Trade.txt", trades, trade_changes),
    Source("TradeHistory.txt", trade_events),
    Source("CashTransaction.txt", cash, cash_changes),
    Source("HoldingHistory.txt", holdings, holding_changes),
    Source("WatchHistory.txt", watches, watch_changes),
    Source("DailyMarket.txt", market, market_changes),
)
"""In the order in which their rows depend on each other: sent so, nothing has to wait."""
