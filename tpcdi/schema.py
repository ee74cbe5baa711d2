"""The warehouse of TPC-DI: its tables, defined once; procedures, audit and oracle go by these.

Names are those of the benchmark in lower case, which is how PostgreSQL reads them. Three things are
ours: a watch has a number of its own (`watchid`), since a customer may place the same one twice in
a day; NUM(n) without decimals is INTEGER and CHAR(n) TEXT; a yield and a P/E ratio have room for
all that prices and dividends can come to.
"""

from typing import NamedTuple

OPEN_END = "9999-12-31"
"""When a version ends that is current."""

HISTORY = """\
    iscurrent BOOLEAN NOT NULL,
    batchid INTEGER NOT NULL,
    effectivedate DATE NOT NULL,
    enddate DATE NOT NULL"""
"""The last columns of a dimension with history."""

PERSON = """\
    lastname TEXT NOT NULL, firstname TEXT NOT NULL, middleinitial TEXT, gender TEXT,
    addressline1 TEXT, addressline2 TEXT, postalcode TEXT, city TEXT, state TEXT, country TEXT,
    phone TEXT, income INTEGER, numbercars INTEGER, numberchildren INTEGER, maritalstatus TEXT,
    age INTEGER, creditrating INTEGER, ownorrentflag TEXT, employer TEXT,
    numbercreditcards INTEGER, networth INTEGER"""
"""What an agency says of a prospect."""


class Definition(NamedTuple):
    """A table: its columns, the key by which its rows are replaced, and what else finds them."""

    columns: str
    key: tuple[str, ...] = ()
    indexes: tuple[str, ...] = ()


TABLES = {
    "dimdate": Definition(
        """\
    sk_dateid INTEGER NOT NULL, datevalue DATE NOT NULL, datedesc TEXT NOT NULL,
    calendaryearid INTEGER NOT NULL, calendaryeardesc TEXT NOT NULL,
    calendarqtrid INTEGER NOT NULL, calendarqtrdesc TEXT NOT NULL,
    calendarmonthid INTEGER NOT NULL, calendarmonthdesc TEXT NOT NULL,
    calendarweekid INTEGER NOT NULL, calendarweekdesc TEXT NOT NULL,
    dayofweeknum INTEGER NOT NULL, dayofweekdesc TEXT NOT NULL,
    fiscalyearid INTEGER NOT NULL, fiscalyeardesc TEXT NOT NULL,
    fiscalqtrid INTEGER NOT NULL, fiscalqtrdesc TEXT NOT NULL,
    holidayflag BOOLEAN NOT NULL""",
        indexes=("sk_dateid",),
    ),
    "dimtime": Definition(
        """\
    sk_timeid INTEGER NOT NULL, timevalue TEXT NOT NULL,
    hourid INTEGER NOT NULL, hourdesc TEXT NOT NULL,
    minuteid INTEGER NOT NULL, minutedesc TEXT NOT NULL,
    secondid INTEGER NOT NULL, seconddesc TEXT NOT NULL,
    markethoursflag BOOLEAN NOT NULL, officehoursflag BOOLEAN NOT NULL""",
        indexes=("sk_timeid",),
    ),
    "industry": Definition("in_id TEXT NOT NULL, in_name TEXT NOT NULL, in_sc_id TEXT NOT NULL"),
    "statustype": Definition("st_id TEXT NOT NULL, st_name TEXT NOT NULL"),
    "taxrate": Definition(
        "tx_id TEXT NOT NULL, tx_name TEXT NOT NULL, tx_rate NUMERIC(6,5) NOT NULL"
    ),
    "tradetype": Definition(
        """\
    tt_id TEXT NOT NULL, tt_name TEXT NOT NULL,
    tt_is_sell BOOLEAN NOT NULL, tt_is_mrkt BOOLEAN NOT NULL"""
    ),
    "dimbroker": Definition(
        f"""\
    sk_brokerid INTEGER NOT NULL, brokerid INTEGER NOT NULL, managerid INTEGER,
    firstname TEXT NOT NULL, lastname TEXT NOT NULL, middleinitial TEXT,
    branch TEXT, office TEXT, phone TEXT,
{HISTORY}""",
        key=("sk_brokerid",),
        indexes=("brokerid",),
    ),
    "dimcompany": Definition(
        f"""\
    sk_companyid INTEGER NOT NULL, companyid INTEGER NOT NULL, status TEXT NOT NULL,
    name TEXT NOT NULL, industry TEXT NOT NULL, sprating TEXT, islowgrade BOOLEAN, ceo TEXT,
    addressline1 TEXT, addressline2 TEXT, postalcode TEXT, city TEXT, stateprov TEXT, country TEXT,
    description TEXT, foundingdate DATE,
{HISTORY}""",
        key=("sk_companyid",),
        indexes=("companyid",),
    ),
    "dimsecurity": Definition(
        f"""\
    sk_securityid INTEGER NOT NULL, symbol TEXT NOT NULL, issue TEXT NOT NULL, status TEXT NOT NULL,
    name TEXT NOT NULL, exchangeid TEXT NOT NULL, sk_companyid INTEGER NOT NULL,
    sharesoutstanding INTEGER NOT NULL,
    firsttrade DATE NOT NULL, firsttradeonexchange DATE NOT NULL,
    dividend NUMERIC(10,2) NOT NULL,
{HISTORY}""",
        key=("sk_securityid",),
        indexes=("symbol",),
    ),
    "dimcustomer": Definition(
        f"""\
    sk_customerid INTEGER NOT NULL, customerid INTEGER NOT NULL, taxid TEXT, status TEXT NOT NULL,
    lastname TEXT, firstname TEXT, middleinitial TEXT, gender TEXT NOT NULL,
    tier INTEGER, dob DATE, addressline1 TEXT, addressline2 TEXT, postalcode TEXT, city TEXT,
    stateprov TEXT, country TEXT, phone1 TEXT, phone2 TEXT, phone3 TEXT, email1 TEXT, email2 TEXT,
    nationaltaxratedesc TEXT, nationaltaxrate NUMERIC(6,5),
    localtaxratedesc TEXT, localtaxrate NUMERIC(6,5),
    agencyid TEXT, creditrating INTEGER, networth INTEGER, marketingnameplate TEXT,
{HISTORY}""",
        key=("sk_customerid",),
        indexes=("customerid",),
    ),
    "dimaccount": Definition(
        f"""\
    sk_accountid INTEGER NOT NULL, accountid INTEGER NOT NULL,
    sk_brokerid INTEGER NOT NULL, sk_customerid INTEGER NOT NULL, status TEXT NOT NULL,
    accountdesc TEXT, taxstatus INTEGER,
{HISTORY}""",
        key=("sk_accountid",),
        indexes=("accountid",),
    ),
    "prospect": Definition(
        f"""\
    agencyid TEXT NOT NULL, sk_recorddateid INTEGER NOT NULL, sk_updatedateid INTEGER NOT NULL,
    batchid INTEGER NOT NULL, iscustomer BOOLEAN NOT NULL,
{PERSON}, marketingnameplate TEXT""",
        key=("agencyid",),
    ),
    "dimtrade": Definition(
        """\
    tradeid INTEGER NOT NULL, sk_brokerid INTEGER,
    sk_createdateid INTEGER NOT NULL, sk_createtimeid INTEGER NOT NULL,
    sk_closedateid INTEGER, sk_closetimeid INTEGER,
    status TEXT NOT NULL, type TEXT NOT NULL, cashflag BOOLEAN NOT NULL,
    sk_securityid INTEGER NOT NULL, sk_companyid INTEGER NOT NULL,
    quantity INTEGER NOT NULL, bidprice NUMERIC(8,2) NOT NULL,
    sk_customerid INTEGER NOT NULL, sk_accountid INTEGER NOT NULL, executedby TEXT NOT NULL,
    tradeprice NUMERIC(8,2), fee NUMERIC(10,2), commission NUMERIC(10,2), tax NUMERIC(10,2),
    batchid INTEGER NOT NULL""",
        key=("tradeid",),
    ),
    "financial": Definition(
        """\
    sk_companyid INTEGER NOT NULL, fi_year INTEGER NOT NULL, fi_qtr INTEGER NOT NULL,
    fi_qtr_start_date DATE NOT NULL, fi_revenue NUMERIC(15,2) NOT NULL,
    fi_net_earn NUMERIC(15,2) NOT NULL, fi_basic_eps NUMERIC(10,2) NOT NULL,
    fi_dilut_eps NUMERIC(10,2) NOT NULL, fi_margin NUMERIC(10,2) NOT NULL,
    fi_inventory NUMERIC(15,2) NOT NULL, fi_assets NUMERIC(15,2) NOT NULL,
    fi_liability NUMERIC(15,2) NOT NULL, fi_out_basic INTEGER NOT NULL,
    fi_out_dilut INTEGER NOT NULL""",
        indexes=("sk_companyid",),
    ),
    "factcashbalances": Definition(
        """\
    sk_customerid INTEGER NOT NULL, sk_accountid INTEGER NOT NULL, sk_dateid INTEGER NOT NULL,
    cash NUMERIC(15,2) NOT NULL, batchid INTEGER NOT NULL""",
        key=("sk_accountid", "sk_dateid"),
    ),
    "factholdings": Definition(
        """\
    tradeid INTEGER NOT NULL, currenttradeid INTEGER NOT NULL,
    sk_customerid INTEGER NOT NULL, sk_accountid INTEGER NOT NULL,
    sk_securityid INTEGER NOT NULL, sk_companyid INTEGER NOT NULL,
    sk_dateid INTEGER NOT NULL, sk_timeid INTEGER NOT NULL,
    currentprice NUMERIC(8,2) NOT NULL, currentholding INTEGER NOT NULL,
    batchid INTEGER NOT NULL"""
    ),
    "factmarkethistory": Definition(
        """\
    sk_securityid INTEGER NOT NULL, sk_companyid INTEGER NOT NULL, sk_dateid INTEGER NOT NULL,
    peratio NUMERIC(15,2), yield NUMERIC(15,2) NOT NULL,
    fiftytwoweekhigh NUMERIC(8,2) NOT NULL, sk_fiftytwoweekhighdate INTEGER NOT NULL,
    fiftytwoweeklow NUMERIC(8,2) NOT NULL, sk_fiftytwoweeklowdate INTEGER NOT NULL,
    closeprice NUMERIC(8,2) NOT NULL, dayhigh NUMERIC(8,2) NOT NULL, daylow NUMERIC(8,2) NOT NULL,
    volume INTEGER NOT NULL, batchid INTEGER NOT NULL"""
    ),
    "factwatches": Definition(
        """\
    watchid INTEGER NOT NULL, sk_customerid INTEGER NOT NULL, sk_securityid INTEGER NOT NULL,
    sk_dateid_dateplaced INTEGER NOT NULL, sk_dateid_dateremoved INTEGER,
    batchid INTEGER NOT NULL""",
        key=("watchid",),
    ),
    "dimessages": Definition(
        """\
    messagedateandtime TIMESTAMP NOT NULL, batchid INTEGER NOT NULL, messagesource TEXT,
    messagetext TEXT NOT NULL, messagetype TEXT NOT NULL, messagedata TEXT"""
    ),
    "audit": Definition(
        """\
    dataset TEXT NOT NULL, batchid INTEGER, date DATE, attribute TEXT NOT NULL,
    value INTEGER, dvalue NUMERIC(15,5)"""
    ),
}
"""In the order in which they depend on each other."""
