"""Checks of what is in the trades and facts, and in Financial."""

from typing import LiteralString

from tpcdi.checks import Checks, answer, batches, distinct, grown, none, query, rows, validated

OF_DAY: LiteralString = "LEFT JOIN dimdate ON dimdate.sk_dateid = one.sk_dateid"

WATCHES: Checks = {
    "FactWatches row count": grown("FactWatches", "WH_ACTIVE"),
    "FactWatches batches": batches("FactWatches", 3),
    "FactWatches active watches": query(
        "SELECT batchid, {rows} + {removed}, '=', {wanted} FROM batch",
        rows=validated("FactWatches"),
        removed=validated("FactWatches", "Inactive watches"),
        wanted=answer("FactWatches", "WH_RECORDS", of="<="),
    ),
    "FactWatches date check": rows(
        "FactWatches",
        """coalesce(removed.datevalue, placed.datevalue) BETWEEN firstday AND lastday
            AND placed.datevalue <= coalesce(removed.datevalue, placed.datevalue)
            AND (removed.datevalue IS NULL) = (sk_dateid_dateremoved IS NULL)""",
        """LEFT JOIN dimdate AS placed ON placed.sk_dateid = sk_dateid_dateplaced
        LEFT JOIN dimdate AS removed ON removed.sk_dateid = sk_dateid_dateremoved""",
    ),
}

TRADES: Checks = {
    "DimTrade row count": query(
        "SELECT batchid, {rows}, '=', {wanted} FROM batch",
        rows=validated("DimTrade"),
        wanted=answer("DimTrade", "T_NEW", of="<="),
    ),
    "DimTrade canceled trades": query("""\
        SELECT NULL, count(*), '=', (SELECT sum(value) FROM audit
            WHERE dataset = 'DimTrade' AND attribute = 'T_CanceledTrades')
        FROM dimtrade WHERE status = 'Canceled'"""),
    "DimTrade commission alerts": query("""\
        SELECT NULL, count(*), '=', (SELECT sum(value) FROM audit
            WHERE dataset = 'DimTrade' AND attribute = 'T_InvalidCommision')
        FROM told WHERE type = 'Alert' AND text = 'Invalid trade commission'"""),
    "DimTrade charge alerts": query("""\
        SELECT NULL, count(*), '=', (SELECT sum(value) FROM audit
            WHERE dataset = 'DimTrade' AND attribute = 'T_InvalidCharge')
        FROM told WHERE type = 'Alert' AND text = 'Invalid trade fee'"""),
    "DimTrade batches": batches("DimTrade", 3),
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
    "DimTrade Status": none("""\
        dimtrade
        WHERE status NOT IN ('Canceled', 'Pending', 'Submitted', 'Active', 'Completed')"""),
    "DimTrade Type": none("""\
        dimtrade
        WHERE type NOT IN ('Market Buy', 'Market Sell', 'Stop Loss', 'Limit Sell', 'Limit Buy')"""),
}

FINANCIAL: Checks = {
    "Financial row count": query(
        "SELECT NULL, {rows}, '=', (SELECT sum(value) FROM audit "
        "WHERE dataset = 'Financial' AND attribute = 'FW_FIN') FROM batch WHERE batchid = 1",
        rows=validated("Financial"),
    ),
    "Financial FI_YEAR": none("""\
        financial LEFT JOIN batch ON batchid = 1
        WHERE (fi_year BETWEEN extract(year FROM firstday) AND extract(year FROM lastday))
            IS NOT TRUE"""),
    "Financial FI_QTR": none("financial WHERE fi_qtr NOT IN (1, 2, 3, 4)"),
    "Financial FI_QTR_START_DATE": none("""\
        financial
        WHERE extract(year FROM fi_qtr_start_date) <> fi_year
            OR extract(month FROM fi_qtr_start_date) <> fi_qtr * 3 - 2
            OR extract(day FROM fi_qtr_start_date) <> 1"""),
    "Financial EPS": none("""\
        financial
        WHERE (abs(round(fi_net_earn / nullif(fi_out_basic, 0), 2) - fi_basic_eps) <= 0.4
            AND abs(round(fi_net_earn / nullif(fi_out_dilut, 0), 2) - fi_dilut_eps) <= 0.4
            AND abs(round(fi_net_earn / nullif(fi_revenue, 0), 2) - fi_margin) <= 0.4)
            IS NOT TRUE"""),
}

# A price is of the day before its batch.
MARKET: Checks = {
    "FactMarketHistory row count": grown("FactMarketHistory", "DM_RECORDS"),
    "FactMarketHistory batches": batches("FactMarketHistory", 3),
    "FactMarketHistory SK_DateID": rows(
        "FactMarketHistory", "datevalue >= firstday - 1 AND datevalue < lastday", OF_DAY
    ),
    "FactMarketHistory relative dates": none("""\
        factmarkethistory
        WHERE fiftytwoweeklow > daylow OR daylow > closeprice OR closeprice > dayhigh
            OR dayhigh > fiftytwoweekhigh"""),
}

HOLDINGS: Checks = {
    "FactHoldings row count": grown("FactHoldings", "HH_RECORDS"),
    "FactHoldings batches": batches("FactHoldings", 3),
    "FactHoldings CurrentTradeID": none("""\
        factholdings LEFT JOIN dimtrade
            ON dimtrade.tradeid = currenttradeid AND sk_closedateid = sk_dateid
            AND sk_closetimeid = sk_timeid
        WHERE dimtrade.tradeid IS NULL"""),
}

CASH: Checks = {"FactCashBalances batches": batches("FactCashBalances", 3)}

CHECKS: Checks = WATCHES | TRADES | FINANCIAL | MARKET | HOLDINGS | CASH
CHECKS |= {
    f"{fact} SK_DateID": rows(fact, "datevalue BETWEEN firstday AND lastday", OF_DAY)
    for fact in ("FactHoldings", "FactCashBalances")
}
