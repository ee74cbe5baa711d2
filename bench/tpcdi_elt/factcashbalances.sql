-- Cash: one row for an account and day, with the balance so far.

INSERT INTO tpcdi.factcashbalances
SELECT sk_customerid, sk_accountid, steps.date_id(day), cash, 1
FROM (
    SELECT ca_id, day, sum(amount) OVER (PARTITION BY ca_id ORDER BY day) AS cash
    FROM (
        SELECT CAST(ct_ca_id AS BIGINT) AS ca_id, CAST(ct_dts AS DATE) AS day,
            sum(CAST(ct_amt AS NUMERIC)) AS amount
        FROM raw.cashtransaction
        GROUP BY 1, 2
    ) AS daily
) AS balance
JOIN steps.account ON accountid = ca_id AND day >= since AND day < enddate;
