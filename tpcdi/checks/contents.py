"""Checks of what is in the dimensions, in Prospect, in Financial and in the facts."""

from typing import LiteralString

from psycopg.sql import SQL, Literal

from tpcdi.checks import (
    Checks,
    answer,
    batches,
    distinct,
    grown,
    in_all,
    in_each,
    none,
    query,
    rows,
    validated,
)

TAGS: dict[str, LiteralString] = {
    "HighValue": "networth > 1000000 OR income > 200000",
    "Expenses": "numberchildren > 3 OR numbercreditcards > 5",
    "Boomer": "age > 45",
    "MoneyAlert": "income < 50000 OR creditrating < 600 OR networth < 100000",
    "Spender": "numbercars > 3 OR numbercreditcards > 7",
    "Inherited": "age < 25 AND networth > 1000000",
}

PHONE: LiteralString = "!~ '^((([+]1 )?[(].{{3}}[)] )?.{{3}}-.{{4}}.*)?$'"

WRONG: dict[str, LiteralString] = {
    "DimBroker BatchID": "dimbroker WHERE batchid <> 1",
    "DimBroker IsCurrent": "dimbroker WHERE NOT iscurrent",
    "DimBroker EffectiveDate": "dimbroker WHERE effectivedate <> '1950-01-01'",
    "DimBroker EndDate": "dimbroker WHERE enddate <> '9999-12-31'",
    "DimAccount TaxStatus": "dimaccount WHERE batchid = 1 AND taxstatus NOT IN (0, 1, 2)",
    "DimAccount inactive customers": """\
        (SELECT sk_customerid
        FROM dimcustomer JOIN dimaccount USING (sk_customerid)
        WHERE dimcustomer.status = 'Inactive'
        GROUP BY sk_customerid
        HAVING count(*) FILTER (WHERE dimaccount.status = 'Inactive') = 0) AS wrong""",
    "DimCustomer Gender": "dimcustomer WHERE gender NOT IN ('M', 'F', 'U')",
    "DimCustomer TaxID": "dimcustomer WHERE taxid NOT LIKE '___-__-____'",
    "DimCustomer Email1": "dimcustomer WHERE email1 NOT LIKE '_%.%@%.%'",
    "DimCustomer Email2": "dimcustomer WHERE email2 NOT LIKE '_%.%@%.%' AND email2 <> ''",
    "DimCustomer Phone1": "dimcustomer WHERE phone1 " + PHONE,
    "DimCustomer Phone2": "dimcustomer WHERE phone2 " + PHONE,
    "DimCustomer Phone3": "dimcustomer WHERE phone3 " + PHONE,
    "DimSecurity ExchangeID": """\
        dimsecurity WHERE exchangeid NOT IN ('NYSE', 'NASDAQ', 'AMEX', 'PCX')""",
    "DimSecurity Issue": """\
        dimsecurity WHERE issue NOT IN ('COMMON', 'PREF_A', 'PREF_B', 'PREF_C', 'PREF_D')""",
    "DimCompany distinct names": """\
        dimcompany AS one JOIN dimcompany AS other
            ON other.name = one.name AND other.companyid <> one.companyid""",
    "DimCompany Industry": """\
        dimcompany WHERE (industry IN (SELECT in_name FROM industry)) IS NOT TRUE""",
    "DimCompany SPrating": """\
        dimcompany WHERE sprating !~ '^(AAA|CC|C|D|(AA|A|BBB|BB|B|CCC)[+-]?)$'""",
    "DimCompany Country": """\
        dimcompany WHERE country NOT IN ('Canada', 'United States of America', '')""",
    "Prospect SK_UpdateDateID": "prospect WHERE sk_recorddateid < sk_updatedateid",
    "Prospect Country": "prospect WHERE country NOT IN ('Canada', 'United States of America')",
    "DimTrade Status": """\
        dimtrade
        WHERE status NOT IN ('Canceled', 'Pending', 'Submitted', 'Active', 'Completed')""",
    "DimTrade Type": """\
        dimtrade
        WHERE type NOT IN ('Market Buy', 'Market Sell', 'Stop Loss', 'Limit Sell', 'Limit Buy')""",
    "Financial FI_YEAR": """\
        financial LEFT JOIN batch ON batchid = 1
        WHERE (fi_year BETWEEN extract(year FROM firstday) AND extract(year FROM lastday))
            IS NOT TRUE""",
    "Financial FI_QTR": "financial WHERE fi_qtr NOT IN (1, 2, 3, 4)",
    "Financial FI_QTR_START_DATE": """\
        financial
        WHERE extract(year FROM fi_qtr_start_date) <> fi_year
            OR extract(month FROM fi_qtr_start_date) <> fi_qtr * 3 - 2
            OR extract(day FROM fi_qtr_start_date) <> 1""",
    "Financial EPS": """\
        financial
        WHERE (abs(round(fi_net_earn / nullif(fi_out_basic, 0), 2) - fi_basic_eps) <= 0.4
            AND abs(round(fi_net_earn / nullif(fi_out_dilut, 0), 2) - fi_dilut_eps) <= 0.4
            AND abs(round(fi_net_earn / nullif(fi_revenue, 0), 2) - fi_margin) <= 0.4)
            IS NOT TRUE""",
    "FactMarketHistory relative dates": """\
        factmarkethistory
        WHERE fiftytwoweeklow > daylow OR daylow > closeprice OR closeprice > dayhigh
            OR dayhigh > fiftytwoweekhigh""",
    "FactHoldings CurrentTradeID": """\
        factholdings LEFT JOIN dimtrade
            ON dimtrade.tradeid = currenttradeid AND sk_closedateid = sk_dateid
            AND sk_closetimeid = sk_timeid
        WHERE dimtrade.tradeid IS NULL""",
}
"""There is no such row: each follows FROM."""

ALERTS: LiteralString = """\
    (SELECT count(*) FROM told
    WHERE type = 'Alert' AND text = {} AND told.batchid = batch.batchid)"""
OF_DAY: LiteralString = "LEFT JOIN dimdate ON dimdate.sk_dateid = one.sk_dateid"
WITHIN: LiteralString = "datevalue BETWEEN firstday AND lastday"

CHECKS: Checks = {name: none(wrong) for name, wrong in WRONG.items()}
CHECKS |= {
    f"{table} batches": batches(table, 3)
    for table in (
        *("Prospect", "DimTrade", "FactWatches", "FactMarketHistory", "FactHoldings"),
        "FactCashBalances",
    )
}
CHECKS |= {
    "DimBroker row count": in_all("count(*) FROM dimbroker", "DimBroker", "HR_BROKERS"),
    "DimBroker distinct keys": in_all(
        "count(DISTINCT sk_brokerid) FROM dimbroker", "DimBroker", "HR_BROKERS"
    ),
    "DimTrade canceled trades": in_all(
        "count(*) FROM dimtrade WHERE status = 'Canceled'", "DimTrade", "T_CanceledTrades"
    ),
    "DimTrade commission alerts": in_all(
        "count(*) FROM told WHERE type = 'Alert' AND text = 'Invalid trade commission'",
        "DimTrade",
        "T_InvalidCommision",
    ),
    "DimTrade charge alerts": in_all(
        "count(*) FROM told WHERE type = 'Alert' AND text = 'Invalid trade fee'",
        "DimTrade",
        "T_InvalidCharge",
    ),
    "Financial row count": in_all(
        "sum(number) FROM told WHERE batchid = 1 AND type = 'Validation'"
        " AND source = 'Financial' AND text = 'Row count'",
        "Financial",
        "FW_FIN",
    ),
    "DimAccount row count": query(
        """\
        SELECT batchid, (SELECT count(*) FROM dimaccount WHERE batchid = batch.batchid),
            CASE batchid WHEN 1 THEN '>' ELSE '>=' END,
            {told} - {again} + CASE batchid WHEN 1 THEN {of_customers} - {customers} ELSE 0 END
        FROM batch""",
        told=answer("DimAccount", "CA_ADDACCT", "CA_CLOSEACCT", "CA_UPDACCT"),
        again=answer("DimAccount", "CA_ID_HIST"),
        of_customers=answer("DimCustomer", "C_NEW", "C_UPDCUST", "C_INACT"),
        customers=answer("DimCustomer", "C_ID_HIST"),
    ),
    "DimCustomer row count": query(
        """\
        SELECT batchid, (SELECT count(*) FROM dimcustomer WHERE batchid = batch.batchid), '>=',
            {told} - {again}
        FROM batch""",
        told=answer("DimCustomer", "C_NEW", "C_INACT", "C_UPDCUST"),
        again=answer("DimCustomer", "C_ID_HIST"),
    ),
    "DimCustomer inactive customers": in_each(
        validated("DimCustomer", "Inactive customers"),
        "=",
        answer("DimCustomer", "C_INACT", of="<="),
    ),
    "DimCustomer age range alerts": in_each(
        SQL(ALERTS).format("DOB out of range"),
        "=",
        answer("DimCustomer", "C_DOB_TO", "C_DOB_TY"),
    ),
    "DimCustomer customer tier alerts": in_each(
        SQL(ALERTS).format("Invalid customer tier"), "=", answer("DimCustomer", "C_TIER_INV")
    ),
    "DimCustomer demographic fields": query("""\
        SELECT NULL, count(*), '=',
            (SELECT count(*) FROM dimcustomer WHERE agencyid IS NOT NULL AND iscurrent)
        FROM dimcustomer AS c
        JOIN prospect AS p
            ON upper(c.firstname || c.lastname || c.addressline1 || coalesce(c.addressline2, '')
                || c.postalcode)
            = upper(p.firstname || p.lastname || p.addressline1 || coalesce(p.addressline2, '')
                || p.postalcode)
            AND coalesce(c.creditrating, 0) = coalesce(p.creditrating, 0)
            AND coalesce(c.networth, 0) = coalesce(p.networth, 0)
            AND coalesce(c.marketingnameplate, '') = coalesce(p.marketingnameplate, '')
        WHERE c.iscurrent"""),
    "DimSecurity row count": query(
        "SELECT batchid, {found}, '>=', {wanted} FROM batch WHERE batchid = 1",
        found=validated("DimSecurity"),
        wanted=answer("DimSecurity", "FW_SEC"),
    ),
    "DimCompany row count": in_each(
        validated("DimCompany"), "<=", answer("DimCompany", "FW_CMP", of="<=")
    ),
    "Prospect SK_RecordDateID": rows(
        "Prospect", "datevalue >= firstday", "LEFT JOIN dimdate ON sk_dateid = sk_recorddateid"
    ),
    # Every tag that applies is there, and what is there is some of the tags, in this order.
    "Prospect MarketingNameplate": none(
        """\
        prospect
        WHERE {untagged}
            OR (CASE WHEN marketingnameplate <> '' THEN '+' || marketingnameplate ELSE '' END)
                !~ {some}""",
        untagged=SQL(" OR ").join(
            query(
                "(" + condition + ") AND position({tag} IN coalesce(marketingnameplate, '')) = 0",
                tag=Literal(tag),
            )
            for tag, condition in TAGS.items()
        ),
        some=Literal("^" + "".join(f"([+]{tag})?" for tag in TAGS) + "$"),
    ),
    "FactWatches row count": grown("FactWatches", "WH_ACTIVE"),
    "FactWatches active watches": in_each(
        SQL(" + ").join([validated("FactWatches"), validated("FactWatches", "Inactive watches")]),
        "=",
        answer("FactWatches", "WH_RECORDS", of="<="),
    ),
    "FactWatches date check": rows(
        "FactWatches",
        """coalesce(removed.datevalue, placed.datevalue) BETWEEN firstday AND lastday
            AND placed.datevalue <= coalesce(removed.datevalue, placed.datevalue)
            AND (removed.datevalue IS NULL) = (sk_dateid_dateremoved IS NULL)""",
        """LEFT JOIN dimdate AS placed ON placed.sk_dateid = sk_dateid_dateplaced
        LEFT JOIN dimdate AS removed ON removed.sk_dateid = sk_dateid_dateremoved""",
    ),
    "DimTrade row count": in_each(validated("DimTrade"), "=", answer("DimTrade", "T_NEW", of="<=")),
    "DimTrade distinct keys": distinct("DimTrade", "tradeid"),
    # A limit order may have been placed in any batch before the one that has it still open.
    "DimTrade date check": rows(
        "DimTrade",
        """CASE WHEN sk_closedateid IS NOT NULL
            THEN closed.datevalue BETWEEN batch.firstday AND batch.lastday
                AND created.datevalue <= closed.datevalue
            ELSE created.datevalue <= batch.lastday AND created.datevalue
                >= CASE WHEN type LIKE 'Limit%' THEN oldest.firstday ELSE batch.firstday END
            END""",
        """JOIN batch AS oldest ON oldest.batchid = 1
        LEFT JOIN dimdate AS created ON created.sk_dateid = sk_createdateid
        LEFT JOIN dimdate AS closed ON closed.sk_dateid = sk_closedateid""",
    ),
    "FactMarketHistory row count": grown("FactMarketHistory", "DM_RECORDS"),
    # A price is of the day before its batch.
    "FactMarketHistory SK_DateID": rows(
        "FactMarketHistory", "datevalue >= firstday - 1 AND datevalue < lastday", OF_DAY
    ),
    "FactHoldings row count": grown("FactHoldings", "HH_RECORDS"),
    "FactHoldings SK_DateID": rows("FactHoldings", WITHIN, OF_DAY),
    "FactCashBalances SK_DateID": rows("FactCashBalances", WITHIN, OF_DAY),
}
CHECKS |= {
    f"DimCustomer {kind}TaxRate": query(
        """\
        SELECT NULL, count(*) FILTER (WHERE tx_name IS NULL), '=', 0
        FROM dimcustomer LEFT JOIN taxrate ON tx_name = {name} AND tx_rate = {rate}
        UNION ALL SELECT NULL, count(DISTINCT {name}), '>=', {least} FROM dimcustomer""",
        name=f"{kind.lower()}taxratedesc",
        rate=f"{kind.lower()}taxrate",
        least=Literal(least),
    )
    for kind, least in (("Local", 301), ("National", 9))
}
