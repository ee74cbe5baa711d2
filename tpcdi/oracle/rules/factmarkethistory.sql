-- Prices of a day, with the highest and lowest of the year that ends on it, for the symbol.

CREATE TABLE steps.market AS
WITH typed AS (
    SELECT batch, dm_s_symb, CAST(dm_date AS DATE) AS dm_date,
        CAST(dm_close AS DECIMAL(8, 2)) AS dm_close, CAST(dm_high AS DECIMAL(8, 2)) AS dm_high,
        CAST(dm_low AS DECIMAL(8, 2)) AS dm_low, CAST(dm_vol AS BIGINT) AS dm_vol
    FROM raw.dailymarket
),
-- The year before 29 February ends on 28 February (reading 4); its own last day is out.
dated AS (
    SELECT *, CAST(dm_date - DATE '1900-01-01' AS INTEGER) AS n,
        dm_date - CAST(dm_date - INTERVAL 1 YEAR AS DATE) - 1 AS days_before
    FROM typed
)
-- Of several days with one price the earliest counts: the greatest of (price, -day).
SELECT *, max({'price': dm_high, 'day': -n}) OVER year AS high,
    max({'price': -dm_low, 'day': -n}) OVER year AS low
FROM dated
WINDOW year AS (
    PARTITION BY dm_s_symb ORDER BY n RANGE BETWEEN days_before PRECEDING AND CURRENT ROW);

-- The earnings of the four quarters before each; without a report in any of them there is no row.
-- Of several reports of a quarter the latest counts.
CREATE TABLE steps.earnings AS
WITH report AS (
    SELECT companyid,
        CAST(substr(line, 19, 4) AS BIGINT) * 4 + CAST(substr(line, 23, 1) AS BIGINT) AS quarter,
        CAST(trim(substr(line, 74, 12)) AS DECIMAL(10, 2)) AS per_share
    FROM steps.of_company
    WHERE kind = 'FIN'
    QUALIFY row_number() OVER (
        PARTITION BY companyid, quarter ORDER BY pts DESC, position DESC) = 1
)
SELECT companyid, quarter + later AS quarter, sum(per_share) AS eps
FROM report, (FROM range(1, 5) AS ahead(later))
GROUP BY ALL;

CREATE TABLE steps.priced AS
WITH placed AS (
    SELECT market.*, sk_securityid, sk_companyid, dividend
    FROM (
        SELECT market.*, CASE batch WHEN 1 THEN dm_date ELSE day END AS lookup
        FROM steps.market JOIN steps.batch USING (batch)
    ) AS market
    ASOF JOIN steps.security_asof AS security ON symbol = dm_s_symb AND lookup >= since
)
SELECT placed.*, eps
FROM placed
JOIN oracle.dimcompany USING (sk_companyid)
LEFT JOIN steps.earnings
    ON earnings.companyid = dimcompany.companyid
    AND earnings.quarter = year(dm_date) * 4 + quarter(dm_date);

INSERT INTO oracle.factmarkethistory BY NAME
SELECT sk_securityid, sk_companyid, date_id(dm_date) AS sk_dateid,
    quotient(dm_close, eps) AS peratio,
    -- Of a price of nothing there is none, and the column may not be NULL.
    coalesce(quotient(dividend * 100, dm_close), 0) AS yield,
    high.price AS fiftytwoweekhigh, date_id(DATE '1900-01-01' - high.day) AS sk_fiftytwoweekhighdate,
    -low.price AS fiftytwoweeklow, date_id(DATE '1900-01-01' - low.day) AS sk_fiftytwoweeklowdate,
    dm_close AS closeprice, dm_high AS dayhigh, dm_low AS daylow, dm_vol AS volume,
    batch AS batchid
FROM steps.priced;

INSERT INTO oracle.dimessages
SELECT day, batch, 'FactMarketHistory', 'No earnings for company', 'Alert',
    'DM_S_SYMB = ' || dm_s_symb
FROM steps.priced JOIN steps.batch USING (batch)
WHERE eps IS NULL;
