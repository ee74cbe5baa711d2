"""The source files, read as they are: every field a text, every row with its batch.

What is missing is an empty table, and what is not named here is ignored. A table keeps the order
of its files, so `rowid` orders the rows of a batch.
"""

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import duckdb
import pyarrow as pa

from tpcdi import schema

BATCHES = (1, 2, 3)


class Source(NamedTuple):
    """A kind of file: its columns, in order."""

    file: str
    columns: str
    delimiter: str = "|"


def _verbatim(file: str, table: str) -> Source:
    """Read a file that has the columns of a table."""
    return Source(file, " ".join(re.findall(r"\b([a-z_]+) [A-Z]", schema.TABLES[table].columns)))


CDC = "cdc_flag cdc_dsn "
"""What the files of the source database begin with, after batch 1."""

INCREMENTAL = {
    "account": Source("Account.txt", "ca_id ca_b_id ca_c_id ca_name ca_tax_st ca_st_id"),
    "cashtransaction": Source("CashTransaction.txt", "ct_ca_id ct_dts ct_amt ct_name"),
    "customer": Source(
        "Customer.txt",
        "c_id c_tax_id c_st_id c_l_name c_f_name c_m_name c_gndr c_tier c_dob c_adline1 c_adline2 "
        "c_zipcode c_city c_state_prov c_ctry c_ctry_1 c_area_1 c_local_1 c_ext_1 c_ctry_2 "
        "c_area_2 c_local_2 c_ext_2 c_ctry_3 c_area_3 c_local_3 c_ext_3 c_email_1 c_email_2 "
        "c_lcl_tx_id c_nat_tx_id",
    ),
    "dailymarket": Source("DailyMarket.txt", "dm_date dm_s_symb dm_close dm_high dm_low dm_vol"),
    "holdinghistory": Source("HoldingHistory.txt", "hh_h_t_id hh_t_id hh_before_qty hh_after_qty"),
    "trade": Source(
        "Trade.txt",
        "t_id t_dts t_st_id t_tt_id t_is_cash t_s_symb t_qty t_bid_price t_ca_id t_exec_name "
        "t_trade_price t_chrg t_comm t_tax",
    ),
    "watchhistory": Source("WatchHistory.txt", "w_c_id w_s_symb w_dts w_action"),
}
PLAIN = {
    "batchdate": Source("BatchDate.txt", "day"),
    "date": _verbatim("Date.txt", "dimdate"),
    "hr": Source(
        "HR.csv",
        "employeeid managerid firstname lastname middleinitial jobcode branch office phone",
        ",",
    ),
    "industry": _verbatim("Industry.txt", "industry"),
    "prospect": Source(
        "Prospect.csv",
        "agencyid lastname firstname middleinitial gender addressline1 addressline2 postalcode "
        "city state country phone income numbercars numberchildren maritalstatus age "
        "creditrating ownorrentflag employer numbercreditcards networth",
        ",",
    ),
    "statustype": _verbatim("StatusType.txt", "statustype"),
    "taxrate": _verbatim("TaxRate.txt", "taxrate"),
    "time": _verbatim("Time.txt", "dimtime"),
    "tradehistory": Source("TradeHistory.txt", "th_t_id th_dts th_st_id"),
    "tradetype": _verbatim("TradeType.txt", "tradetype"),
}
AUDIT = Source("", "dataset batchid date attribute value dvalue", ",")
FINWIRE = Source("", "line", "\x01")  # no delimiter: one that does not occur

ACTIONS = (
    "actiontype actionts c_id c_tax_id c_gndr c_tier c_dob c_l_name c_f_name c_m_name c_adline1 "
    "c_adline2 c_zipcode c_city c_state_prov c_ctry c_prim_email c_alt_email c_lcl_tx_id "
    "c_nat_tx_id ca_id ca_tax_st ca_b_id ca_name "
    "c_phone_1 c_ctry_code_1 c_area_code_1 c_local_1 c_ext_1 "
    "c_phone_2 c_ctry_code_2 c_area_code_2 c_local_2 c_ext_2 "
    "c_phone_3 c_ctry_code_3 c_area_code_3 c_local_3 c_ext_3"
)
"""An action of CustomerMgmt.xml: what is absent is NULL, and what is there but empty is ''."""

ROWS = """
    INSERT INTO raw.{table} BY NAME
    SELECT $batch AS batch, * FROM read_csv($files, columns = $columns, delim = $delimiter,
        auto_detect = false, header = false, quote = '', escape = '', nullstr = '',
        new_line = $new_line)"""


def read(connection: duckdb.DuckDBPyConnection, directory: Path, batches: int) -> None:
    """Read the files of a directory, up to a batch, into the schema `raw`."""
    connection.execute("CREATE SCHEMA raw")
    for table, source in (INCREMENTAL | PLAIN).items():
        _create(connection, table, CDC * (table in INCREMENTAL) + source.columns)
    _create(connection, "finwire", FINWIRE.columns)
    _create(connection, "audit", AUDIT.columns)
    _create(connection, "action", ACTIONS)
    for batch in BATCHES[:batches]:
        folder = directory / f"Batch{batch}"
        for table, source in PLAIN.items():
            _insert(connection, table, source, batch, folder / source.file)
        for table, source in INCREMENTAL.items():
            columns = CDC * (batch > 1) + source.columns
            _insert(
                connection, table, source._replace(columns=columns), batch, folder / source.file
            )
        told = [directory / f"Batch{batch}_audit.csv", *sorted(folder.glob("*_audit.csv"))]
        for path in told:
            _insert(connection, "audit", AUDIT, batch, path)
    _insert(connection, "audit", AUDIT, 0, directory / "Generator_audit.csv")
    for path in sorted((directory / "Batch1").glob("FINWIRE[0-9][0-9][0-9][0-9]Q[1-4]")):
        _insert(connection, "finwire", FINWIRE, 1, path)
    columns = pa.schema([(name, pa.string()) for name in ACTIONS.split()])
    parsed = pa.Table.from_pylist([*actions(directory / "Batch1" / "CustomerMgmt.xml")], columns)
    connection.from_arrow(parsed).project("1 AS batch, *").insert_into("raw.action")


def _create(connection: duckdb.DuckDBPyConnection, table: str, columns: str) -> None:
    typed = ", ".join(f"{name} VARCHAR" for name in columns.split())
    connection.execute(f"CREATE TABLE raw.{table} (batch BIGINT, {typed})")


def _insert(
    connection: duckdb.DuckDBPyConnection, table: str, source: Source, batch: int, path: Path
) -> None:
    if not path.is_file() or not path.stat().st_size:
        return
    with path.open("rb") as lines:
        new_line = "\\r\\n" if lines.readline().endswith(b"\r\n") else "\\n"
    arguments = {
        "batch": batch,
        "files": str(path),
        "columns": dict.fromkeys(source.columns.split(), "VARCHAR"),
        "delimiter": source.delimiter,
        "new_line": new_line,
    }
    connection.execute(ROWS.format(table=table), arguments)


def actions(path: Path) -> Iterator[dict[str, str]]:
    """Give an action's fields, once for each account that it names."""
    if not path.is_file():
        return
    for _, element in ET.iterparse(path):  # noqa: S314 - a file of our own generator
        if _tag(element) == "action":
            customer = _fields(element, within="account")
            accounts = [_fields(one) for one in element.iter() if _tag(one) == "account"]
            for account in accounts or [{}]:
                yield customer | account
            element.clear()


def _fields(element: ET.Element, within: str = "") -> dict[str, str]:
    """Give attributes and leaves below an element, without those within another one.

    A phone's parts are numbered as the phone is, and that it is there at all is a field too.
    """
    found = {name.lower(): of for name, of in element.attrib.items()}
    for child in element:
        if (tag := _tag(child)) == within:
            continue
        if tag.startswith("c_phone_"):
            found[tag] = ""
            found |= {f"{_tag(part)}_{tag[-1]}": part.text or "" for part in child}
        elif len(child) or child.attrib:
            found |= _fields(child, within)
        else:
            found[tag] = child.text or ""
    return found


def _tag(element: ET.Element) -> str:
    return element.tag.rpartition("}")[2].lower()
