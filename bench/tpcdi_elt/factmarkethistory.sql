-- Prices of a day, with the highest and lowest of the year that ends on it, for the symbol.

-- PostgreSQL computes the maximum of a moving frame anew for each row. So the frame is put together
-- from two that only grow: from 1 January up to the day, and from the frame's first day up to the
-- end of that year. Price and day are one number, the price first: of several days with the same
-- price the earliest is to win.
CREATE TABLE steps.market AS
WITH typed AS (
    SELECT dm_s_symb, CAST(dm_date AS DATE) AS dm_date, CAST(dm_close AS NUMERIC) AS dm_close,
        CAST(dm_high AS NUMERIC) AS dm_high, CAST(dm_low AS NUMERIC) AS dm_low,
        CAST(dm_vol AS BIGINT) AS dm_vol
    FROM raw.dailymarket
),
numbered AS (
    SELECT *, CAST(date_part('year', dm_date) AS INTEGER) AS year,
        CAST(dm_high * 100 AS BIGINT) * 100000 - (dm_date - DATE '1900-01-01') AS high,
        CAST(dm_low * 100 AS BIGINT) * 100000 + (dm_date - DATE '1900-01-01') AS low
    FROM typed
),
growing AS (
    SELECT *,
        max(high) OVER from_january AS high_before, min(low) OVER from_january AS low_before,
        max(high) OVER to_december AS high_after, min(low) OVER to_december AS low_after
    FROM numbered
    WINDOW from_january AS (PARTITION BY dm_s_symb, year ORDER BY dm_date),
        to_december AS (PARTITION BY dm_s_symb, year ORDER BY dm_date DESC)
),
framed AS (
    SELECT *, first_value(year) OVER of_year AS first_year,
        first_value(high_after) OVER of_year AS first_high,
        first_value(low_after) OVER of_year AS first_low
    FROM growing
    -- A day more than a year before the day: the same date a year earlier is out.
    WINDOW of_year AS (PARTITION BY dm_s_symb ORDER BY dm_date
        RANGE BETWEEN INTERVAL '1 year -1 day' PRECEDING AND CURRENT ROW)
)
SELECT dm_s_symb, dm_date, dm_close, dm_high, dm_low, dm_vol,
    CASE WHEN first_year < year THEN greatest(high_before, first_high) ELSE high_before END AS high,
    CASE WHEN first_year < year THEN least(low_before, first_low) ELSE low_before END AS low
FROM framed;
ANALYZE steps.market;

-- The earnings of the four quarters before each; without a report in any of them there is no row.
CREATE TABLE steps.earnings AS
SELECT companyid, fi_year * 4 + fi_qtr + later AS quarter, sum(fi_basic_eps) AS eps
FROM tpcdi.financial
JOIN tpcdi.dimcompany USING (sk_companyid), generate_series(1, 4) AS ahead (later)
GROUP BY 1, 2;
ANALYZE steps.earnings;

CREATE TABLE steps.priced AS
SELECT sk_securityid, sk_companyid, dm_s_symb, steps.date_id(dm_date) AS sk_dateid, dividend, eps,
    (high + 99999) / 100000 AS high, low / 100000 AS low,
    DATE '1900-01-01' + CAST((high + 99999) / 100000 * 100000 - high AS INTEGER) AS high_day,
    DATE '1900-01-01' + CAST(low % 100000 AS INTEGER) AS low_day,
    dm_close, dm_high, dm_low, dm_vol
FROM steps.market
JOIN steps.security ON symbol = dm_s_symb AND dm_date >= since AND dm_date < enddate
LEFT JOIN steps.earnings
    ON earnings.companyid = security.companyid
    AND quarter = CAST(date_part('year', dm_date) * 4 + date_part('quarter', dm_date) AS BIGINT);

INSERT INTO tpcdi.factmarkethistory
SELECT sk_securityid, sk_companyid, sk_dateid, round(dm_close / NULLIF(eps, 0), 2),
    round(dividend * 100 / NULLIF(dm_close, 0), 2), CAST(high AS NUMERIC) / 100,
    steps.date_id(high_day), CAST(low AS NUMERIC) / 100, steps.date_id(low_day), dm_close, dm_high,
    dm_low, dm_vol, 1
FROM steps.priced;

INSERT INTO tpcdi.dimessages
SELECT CAST(day AS DATE), 1, 'FactMarketHistory', 'No earnings for company', 'Alert',
    'DM_S_SYMB = ' || dm_s_symb
FROM steps.priced, raw.batchdate
WHERE eps IS NULL;
