-- Cash: one row for an account and day; in the increments the day is the batch's (reading 3).

INSERT INTO oracle.factcashbalances BY NAME
WITH daily AS (
    SELECT batch, CAST(ct_ca_id AS BIGINT) AS ca_id,
        CASE batch WHEN 1 THEN CAST(CAST(ct_dts AS TIMESTAMP) AS DATE) ELSE batch.day END AS dated,
        sum(CAST(ct_amt AS DECIMAL(15, 2))) AS amount
    FROM raw.cashtransaction
    JOIN steps.batch USING (batch)
    GROUP BY ALL
),
balance AS (
    SELECT *, sum(amount) OVER (PARTITION BY ca_id ORDER BY dated) AS cash FROM daily
)
SELECT sk_customerid, sk_accountid, date_id(dated) AS sk_dateid, cash, batch AS batchid
FROM balance
ASOF JOIN steps.account_asof AS account ON accountid = ca_id AND dated >= since;
