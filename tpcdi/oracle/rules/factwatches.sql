-- Watches: ACTV opens one, CNCL closes the oldest open one of that customer and symbol (reading 3):
-- in the order of the file, which is that of commits.

INSERT INTO oracle.factwatches BY NAME
WITH event AS (
    SELECT batch, rowid AS position, CAST(w_c_id AS BIGINT) AS w_c_id, w_s_symb,
        CAST(w_dts AS TIMESTAMP) AS dts, CASE w_action WHEN 'ACTV' THEN 1 ELSE -1 END AS step
    FROM raw.watchhistory
),
-- A cancellation that finds none open takes the balance to a new low, and is void.
balanced AS (
    SELECT *, sum(step) OVER (PARTITION BY w_c_id, w_s_symb ORDER BY position)
        AS balance
    FROM event
),
lowest AS (
    SELECT *, coalesce(min(balance) OVER (PARTITION BY w_c_id, w_s_symb
        ORDER BY position ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS low
    FROM balanced
),
numbered AS (
    SELECT *, row_number() OVER (PARTITION BY w_c_id, w_s_symb, step
        ORDER BY position) AS nth
    FROM lowest
    WHERE step = 1 OR balance >= least(low, 0)
),
watch AS (
    SELECT placed.*, removed.dts AS removed, coalesce(removed.batch, placed.batch) AS batchid,
        CASE placed.batch WHEN 1 THEN CAST(placed.dts AS DATE) ELSE day END AS lookup
    FROM numbered AS placed
    JOIN steps.batch USING (batch)
    LEFT JOIN numbered AS removed
        ON removed.w_c_id = placed.w_c_id AND removed.w_s_symb = placed.w_s_symb
        AND removed.nth = placed.nth AND removed.step = -1
    WHERE placed.step = 1
),
by_customer AS (
    SELECT watch.*, sk_customerid
    FROM watch
    ASOF JOIN steps.customer_asof AS customer ON customerid = w_c_id AND lookup >= since
)
SELECT row_number() OVER () AS watchid, sk_customerid, sk_securityid,
    date_id(dts) AS sk_dateid_dateplaced, date_id(removed) AS sk_dateid_dateremoved,
    by_customer.batchid
FROM by_customer
ASOF JOIN steps.security_asof AS security ON symbol = w_s_symb AND lookup >= since;
