-- Trades: one row each. How they are is what was last said, where they belong what was first.

-- What a trade has come to is when its own status was last told; if it never was, the trade waits.
CREATE TABLE steps.tradehistory AS
SELECT t_id,
    min(event.dts) FILTER (WHERE th_st_id = 'PNDG') AS pending,
    min(event.dts) FILTER (WHERE th_st_id = 'SBMT') AS submitted,
    max(event.dts) FILTER (WHERE th_st_id = t_st_id) AS latest
FROM (SELECT *, CAST(th_dts AS TIMESTAMP) AS dts FROM raw.tradehistory) AS event
JOIN raw.trade ON t_id = th_t_id AND trade.batch = 1
GROUP BY t_id
HAVING latest IS NOT NULL;

-- When a trade was first over, and the first price that it had then: both stay, whatever follows.
CREATE TABLE steps.closing AS
WITH event AS (
    SELECT trade.t_id, batch, trade.rowid AS position, t_trade_price,
        CASE batch WHEN 1 THEN latest ELSE CAST(t_dts AS TIMESTAMP) END AS closed,
        bool_or(t_st_id IN ('CMPT', 'CNCL')) OVER (
            PARTITION BY trade.t_id ORDER BY trade.rowid) AS is_over
    FROM raw.trade
    LEFT JOIN steps.tradehistory USING (t_id)
)
SELECT t_id, arg_min(closed, position) AS closed, min(batch) AS batch,
    arg_min(t_trade_price, position) AS price,
    min(batch) FILTER (WHERE t_trade_price IS NOT NULL) AS priced
FROM event
WHERE is_over
GROUP BY t_id;

INSERT INTO oracle.dimtrade BY NAME
WITH event AS (
    SELECT *, rowid AS position, CAST(t_dts AS TIMESTAMP) AS dts FROM raw.trade
),
first AS (
    SELECT event.t_id, t_ca_id, t_s_symb,
        CASE WHEN batch > 1 THEN dts WHEN t_tt_id IN ('TMB', 'TMS')
            THEN least(submitted, pending) ELSE pending END AS created,
        CASE batch WHEN 1 THEN CAST(created AS DATE) ELSE day END AS lookup
    FROM event
    JOIN steps.batch USING (batch)
    LEFT JOIN steps.tradehistory USING (t_id)
    WHERE batch = 1 OR cdc_flag = 'I'
    QUALIFY row_number() OVER (PARTITION BY event.t_id ORDER BY position) = 1
),
last AS (
    SELECT * FROM event
    QUALIFY row_number() OVER (PARTITION BY t_id ORDER BY position DESC) = 1
),
trade AS (
    SELECT first.*, last.* EXCLUDE (t_id, t_ca_id, t_s_symb, batch), closed,
        coalesce(closing.batch, last.batch) AS batch
    FROM first
    JOIN last USING (t_id)
    LEFT JOIN steps.closing USING (t_id)
    WHERE created IS NOT NULL
),
placed AS (
    SELECT trade.*, account.sk_accountid, account.sk_customerid, account.sk_brokerid
    FROM trade
    ASOF JOIN steps.account_asof AS account
        ON account.accountid = CAST(t_ca_id AS BIGINT) AND lookup >= account.since
)
SELECT t_id AS tradeid, sk_brokerid, date_id(created) AS sk_createdateid,
    time_id(created) AS sk_createtimeid, date_id(closed) AS sk_closedateid,
    time_id(closed) AS sk_closetimeid, st_name AS status, tt_name AS type, t_is_cash AS cashflag,
    sk_securityid, sk_companyid, t_qty AS quantity, t_bid_price AS bidprice, sk_customerid,
    sk_accountid, t_exec_name AS executedby, t_trade_price AS tradeprice, t_chrg AS fee,
    t_comm AS commission, t_tax AS tax, batch AS batchid
FROM placed
ASOF JOIN steps.security_asof AS security
    ON security.symbol = t_s_symb AND lookup >= security.since
JOIN oracle.statustype ON st_id = t_st_id
JOIN oracle.tradetype ON tt_id = t_tt_id;

-- Alerts are raised by all that is said of a trade.
INSERT INTO oracle.dimessages
WITH told AS (
    SELECT batch, CAST(t_id AS BIGINT) AS tradeid,
        CAST(t_trade_price AS DECIMAL(8, 2)) * CAST(t_qty AS BIGINT) AS worth,
        CAST(t_comm AS DECIMAL(10, 2)) AS commission, CAST(t_chrg AS DECIMAL(10, 2)) AS fee
    FROM raw.trade
    WHERE t_id IN (SELECT CAST(tradeid AS VARCHAR) FROM oracle.dimtrade)
)
SELECT day, batch, 'DimTrade', 'Invalid trade commission', 'Alert',
    'T_ID = ' || tradeid || ', T_COMM = ' || commission
FROM told JOIN steps.batch USING (batch) WHERE commission > worth
UNION ALL
SELECT day, batch, 'DimTrade', 'Invalid trade fee', 'Alert',
    'T_ID = ' || tradeid || ', T_CHRG = ' || fee
FROM told JOIN steps.batch USING (batch) WHERE fee > worth;
