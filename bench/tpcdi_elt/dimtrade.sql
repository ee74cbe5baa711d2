-- Trades: one row each, placed by the first thing that happened to them.

CREATE TABLE steps.trade_times AS
SELECT t_id, min(dts) AS first, min(dts) FILTER (WHERE th_st_id = 'PNDG') AS pending,
    min(dts) FILTER (WHERE th_st_id = 'SBMT') AS submitted,
    max(dts) FILTER (WHERE th_st_id IN ('CMPT', 'CNCL')) AS closed
FROM (
    SELECT CAST(th_t_id AS BIGINT) AS t_id, CAST(th_dts AS TIMESTAMP) AS dts, th_st_id
    FROM raw.tradehistory
) AS typed
GROUP BY t_id;
ANALYZE steps.trade_times;

INSERT INTO tpcdi.dimtrade
SELECT t_id, sk_brokerid, steps.date_id(created), steps.time_id(created), steps.date_id(closed),
    steps.time_id(closed), st_name, tt_name, CAST(t_is_cash AS BOOLEAN), sk_securityid,
    sk_companyid, CAST(t_qty AS BIGINT), CAST(t_bid_price AS NUMERIC), sk_customerid, sk_accountid,
    t_exec_name, CAST(t_trade_price AS NUMERIC), CAST(t_chrg AS NUMERIC), CAST(t_comm AS NUMERIC),
    CAST(t_tax AS NUMERIC), 1
FROM (
    SELECT trade.*, times.t_id AS id, CAST(first AS DATE) AS lookup, closed,
        CASE WHEN t_tt_id IN ('TMB', 'TMS') THEN least(submitted, pending) ELSE pending END
            AS created
    FROM raw.trade
    JOIN steps.trade_times AS times ON times.t_id = CAST(trade.t_id AS BIGINT)
) AS trade (
    text_id, t_dts, t_st_id, t_tt_id, t_is_cash, t_s_symb, t_qty, t_bid_price, t_ca_id,
    t_exec_name, t_trade_price, t_chrg, t_comm, t_tax, t_id, lookup, closed, created
)
JOIN steps.account
    ON accountid = CAST(t_ca_id AS BIGINT) AND lookup >= account.since AND lookup < account.enddate
JOIN steps.security
    ON symbol = t_s_symb AND lookup >= security.since AND lookup < security.enddate
JOIN tpcdi.statustype ON st_id = t_st_id
JOIN tpcdi.tradetype ON tt_id = t_tt_id
WHERE created IS NOT NULL;
ANALYZE tpcdi.dimtrade;

INSERT INTO tpcdi.dimessages
SELECT CAST(day AS DATE), 1, 'DimTrade', 'Invalid trade commission', 'Alert',
    'T_ID = ' || tradeid || ', T_COMM = ' || commission
FROM tpcdi.dimtrade, raw.batchdate
WHERE commission > tradeprice * quantity
UNION ALL
SELECT CAST(day AS DATE), 1, 'DimTrade', 'Invalid trade fee', 'Alert',
    'T_ID = ' || tradeid || ', T_CHRG = ' || fee
FROM tpcdi.dimtrade, raw.batchdate
WHERE fee > tradeprice * quantity;
