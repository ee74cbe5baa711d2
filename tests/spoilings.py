"""What spoils a warehouse in one respect, for each of the audit's checks."""

from tpcdi.checks.references import BEGUN, HISTORIES, VALID, WITHIN
from tpcdi.seen import JOINED, TABLES


def one(table: str, change: str, where: str = "true") -> str:
    """Change one row of a table."""
    chosen = f"SELECT min(ctid) FROM {table} WHERE {where}"
    return f"UPDATE {table} SET {change} WHERE ctid = ({chosen})"


def told(
    source: str, number: str, batch: int = 3, text: str = "Row count", kind: str = "Validation"
) -> str:
    """Change a number that was reported."""
    return one(
        "dimessages",
        f"messagedata = {number}",
        f"messagetype = '{kind}' AND messagesource = '{source}' AND messagetext = '{text}'"
        f" AND batchid = {batch}",
    )


MORE = "CAST(messagedata AS BIGINT) + 1"


def answered(dataset: str, attribute: str, batch: int = 1, by: int = 1000) -> str:
    """Change an answer."""
    where = f"dataset = '{dataset}' AND attribute = '{attribute}' AND batchid = {batch}"
    return one("audit", f"value = value + {by}", where)


SPOILINGS = {
    "Audit table batches": "DELETE FROM audit WHERE batchid = 2",
    "Audit table sources": "DELETE FROM audit WHERE dataset = 'Generator'",
    "DImessages validation reports": one(
        "dimessages", "messagetype = 'Other'", "messagetype = 'Validation'"
    ),
    "DImessages batches": "DELETE FROM dimessages WHERE batchid = 0",
    "DImessages Phase complete records": one(
        "dimessages", "messagetype = 'Other'", "messagetype = 'PCR'"
    ),
    "DImessages sources": "DELETE FROM dimessages WHERE messagesource = 'TaxRate'",
    "DImessages initial condition": told("DimDate", "1", batch=0),
    "DimBroker row count": "INSERT INTO dimbroker SELECT * FROM dimbroker",
    "DimBroker distinct keys": answered("DimBroker", "HR_BROKERS"),
    "DimBroker BatchID": one("dimbroker", "batchid = 2"),
    "DimBroker IsCurrent": one("dimbroker", "iscurrent = false"),
    "DimBroker EffectiveDate": one("dimbroker", "effectivedate = '1950-01-02'"),
    "DimBroker EndDate": one("dimbroker", "enddate = '9999-12-30'"),
    "DimAccount row count": answered("DimAccount", "CA_ADDACCT", batch=2),
    "DimAccount TaxStatus": one("dimaccount", "taxstatus = 3", "batchid = 1"),
    "DimAccount inactive customers": one(
        "dimaccount",
        "status = 'Active'",
        "status = 'Inactive' "
        "AND sk_customerid IN (SELECT sk_customerid FROM dimcustomer WHERE status = 'Inactive')",
    ),
    "DimCustomer row count": answered("DimCustomer", "C_UPDCUST", batch=3),
    "DimCustomer inactive customers": told("DimCustomer", MORE, text="Inactive customers"),
    "DimCustomer Gender": one("dimcustomer", "gender = 'f'"),
    "DimCustomer age range alerts": one(
        "dimessages", "batchid = 2", "messagetext = 'DOB out of range'"
    ),
    "DimCustomer customer tier alerts": (
        "DELETE FROM dimessages WHERE messagetext = 'Invalid customer tier'"
    ),
    "DimCustomer TaxID": one("dimcustomer", "taxid = '123456789'"),
    "DimCustomer Phone1": one("dimcustomer", "phone1 = '+1 111-1111'"),
    "DimCustomer Phone2": one("dimcustomer", "phone2 = '(11) 111-1111'"),
    "DimCustomer Phone3": one("dimcustomer", "phone3 = '1111111'"),
    "DimCustomer Email1": one("dimcustomer", "email1 = 'a@b.c'"),
    "DimCustomer Email2": one("dimcustomer", "email2 = 'a.b@c'"),
    "DimCustomer LocalTaxRate": one("dimcustomer", "localtaxrate = 0.9"),
    "DimCustomer NationalTaxRate": one("dimcustomer", "nationaltaxratedesc = 'Other'"),
    "DimCustomer demographic fields": one(
        "dimcustomer", "networth = 1", "agencyid IS NOT NULL AND iscurrent"
    ),
    "DimSecurity row count": answered("DimSecurity", "FW_SEC"),
    "DimSecurity ExchangeID": one("dimsecurity", "exchangeid = 'XETRA'"),
    "DimSecurity Issue": one("dimsecurity", "issue = 'PREF_E'"),
    "DimCompany row count": told("DimCompany", "4"),
    "DimCompany distinct names": "UPDATE dimcompany SET name = 'ACME'",
    "DimCompany Industry": one("dimcompany", "industry = 'SL'"),
    "DimCompany SPrating": one("dimcompany", "sprating = 'AAA+'"),
    "DimCompany Country": one("dimcompany", "country = 'USA'"),
    "Prospect SK_UpdateDateID": one("prospect", "sk_recorddateid = sk_updatedateid - 1"),
    "Prospect SK_RecordDateID": one("prospect", "sk_recorddateid = 20170708", "batchid = 3"),
    "Prospect batches": "UPDATE prospect SET batchid = 2 WHERE batchid = 3",
    "Prospect Country": one("prospect", "country = 'CANADA'"),
    "Prospect MarketingNameplate": one(
        "prospect", "marketingnameplate = 'Boomer'", "marketingnameplate = 'HighValue'"
    ),
    "FactWatches row count": told("FactWatches", MORE),
    "FactWatches active watches": told("FactWatches", MORE, text="Inactive watches"),
    "FactWatches date check": one("factwatches", "batchid = 2", "batchid = 3"),
    "DimTrade row count": told("DimTrade", MORE, batch=2),
    "DimTrade canceled trades": one("dimtrade", "status = 'Completed'", "status = 'Canceled'"),
    "DimTrade commission alerts": one(
        "dimessages", "messagetype = 'Other'", "messagetext = 'Invalid trade commission'"
    ),
    "DimTrade charge alerts": one(
        "dimessages", "messagetype = 'Other'", "messagetext = 'Invalid trade fee'"
    ),
    "DimTrade distinct keys": "INSERT INTO dimtrade SELECT * FROM dimtrade WHERE tradeid = 1",
    "DimTrade date check": one("dimtrade", "batchid = 1", "tradeid = 4"),
    "DimTrade Status": one("dimtrade", "status = 'CMPT'"),
    "DimTrade Type": one("dimtrade", "type = 'TMB'"),
    "Financial row count": answered("Financial", "FW_FIN"),
    "Financial SK_CompanyID": one("financial", "sk_companyid = -1"),
    "Financial FI_YEAR": one("financial", "fi_year = 2018"),
    "Financial FI_QTR": one("financial", "fi_qtr = 5"),
    "Financial FI_QTR_START_DATE": one("financial", "fi_qtr_start_date = fi_qtr_start_date + 1"),
    "Financial EPS": one("financial", "fi_margin = fi_margin + 0.41"),
    "FactMarketHistory row count": told("FactMarketHistory", MORE, batch=0),
    "FactMarketHistory SK_DateID": one("factmarkethistory", "batchid = 3", "batchid = 2"),
    "FactMarketHistory relative dates": one("factmarkethistory", "closeprice = dayhigh + 0.01"),
    "FactHoldings row count": answered("FactHoldings", "HH_RECORDS", batch=3),
    "FactHoldings CurrentTradeID": one("factholdings", "sk_timeid = sk_timeid + 1"),
    "FactHoldings SK_DateID": one("factholdings", "batchid = 3", "batchid = 2"),
    "FactCashBalances SK_DateID": one("factcashbalances", "sk_dateid = 20170710", "batchid = 3"),
}
"""Statements on the warehouse of `audited`, each in a transaction that is rolled back."""

for _table, (_surrogate, _key, _) in HISTORIES.items():
    _last, _former = "enddate = '9999-12-31'", "enddate < '9999-12-31'"
    SPOILINGS |= {
        f"{_table} distinct keys": f"INSERT INTO {_table} SELECT * FROM {_table} LIMIT 1",
        f"{_table} EndDate": one(_table, "enddate = '9999-12-30'", _former),
        f"{_table} Overlap": one(_table, "enddate = enddate + 1", _former),
        f"{_table} End of Time": one(_table, "enddate = '9999-12-30'", _last),
        f"{_table} consolidation": one(_table, "enddate = effectivedate", _former),
        f"{_table} batches": one(_table, "batchid = 4"),
        f"{_table} EffectiveDate": one(_table, "effectivedate = '1949-12-31'"),
        f"{_table} Status": one(_table, "status = 'ACTV'"),
    }
for _table in ("DimAccount", "DimCustomer", "DimSecurity"):
    SPOILINGS[f"{_table} IsCurrent"] = one(_table, "iscurrent = NOT iscurrent")
for _table, _keys in WITHIN.items():
    for _key in _keys:
        SPOILINGS[f"{_table} {_key}"] = one(_table, "effectivedate = '1949-12-31'")
# A day before anything began to be.
for (_fact, _date), _keys in VALID.items():
    for _key in _keys:
        SPOILINGS[f"{_fact} {_key}"] = one(_fact, f"{_date} = 19491231")
for _key in BEGUN:
    SPOILINGS[f"FactHoldings {_key}"] = one("factholdings", "sk_dateid = 19500101")
for _fact in ("DimTrade", *JOINED):
    SPOILINGS[f"{_fact} batches"] = one(_fact, "batchid = 4")
for _table in TABLES:
    SPOILINGS[f"Batch row count: {_table}"] = told(_table, "0")
    SPOILINGS[f"Data visibility row counts: {_table}"] = told(_table, "0", kind="Visibility_1")
for _fact in JOINED:
    SPOILINGS[f"Batch joined row count: {_fact}"] = told(_fact, "0", text="Row count joined")
    SPOILINGS[f"Data visibility joined row counts: {_fact}"] = told(
        _fact, "0", text="Row count joined", kind="Visibility_1"
    )
