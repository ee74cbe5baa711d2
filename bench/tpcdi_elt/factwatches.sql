-- Watches: ACTV opens one, CNCL closes the oldest open one of that customer and symbol.

INSERT INTO tpcdi.factwatches
WITH balanced AS (
    SELECT w_c_id, w_s_symb, step, dts, position, sum(step) OVER so_far AS balance
    FROM (
        SELECT CAST(w_c_id AS BIGINT) AS w_c_id, w_s_symb, CAST(w_dts AS TIMESTAMP) AS dts,
            ctid AS position, CASE w_action WHEN 'ACTV' THEN 1 ELSE -1 END AS step
        FROM raw.watchhistory
    ) AS typed
    WINDOW so_far AS (PARTITION BY w_c_id, w_s_symb ORDER BY dts, position)
),
-- A cancellation that finds none open takes the balance to a new low, and is void.
lowest AS (
    SELECT *, min(balance) OVER (PARTITION BY w_c_id, w_s_symb ORDER BY dts, position
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS low
    FROM balanced
),
-- The nth that is closed is the nth that was opened.
numbered AS (
    SELECT w_c_id, w_s_symb, step, dts,
        CASE step WHEN 1 THEN count(*) FILTER (WHERE step = 1) OVER so_far
            ELSE count(*) FILTER (WHERE step = -1 AND balance >= least(low, 0)) OVER so_far END
            AS nth
    FROM lowest
    WHERE step = 1 OR balance >= least(low, 0)
    WINDOW so_far AS (PARTITION BY w_c_id, w_s_symb ORDER BY dts, position)
),
watch AS (
    SELECT w_c_id, w_s_symb, min(dts) FILTER (WHERE step = 1) AS placed,
        min(dts) FILTER (WHERE step = -1) AS removed
    FROM numbered
    GROUP BY w_c_id, w_s_symb, nth
)
SELECT row_number() OVER (), sk_customerid, sk_securityid, steps.date_id(placed),
    steps.date_id(removed), 1
FROM watch
JOIN steps.customer_state AS customer
    ON customerid = w_c_id AND CAST(placed AS DATE) >= customer.since
    AND CAST(placed AS DATE) < customer.enddate
JOIN steps.security
    ON symbol = w_s_symb AND CAST(placed AS DATE) >= security.since
    AND CAST(placed AS DATE) < security.enddate;
