-- SEC, key Symbol: a version for every day with a record, and one when its company changes.

CREATE TABLE steps.security AS
WITH filing AS (
    SELECT DISTINCT ON (symbol, filed) *
    FROM (
        SELECT steps.blank(substr(line, 19, 15)) AS symbol, day AS filed, companyid, line, pts,
            position
        FROM steps.of_company
        WHERE kind = 'SEC'
    ) AS told
    ORDER BY symbol, filed, pts DESC, position DESC
),
version AS (
    SELECT *, lead(filed, 1, DATE '9999-12-31') OVER (PARTITION BY symbol ORDER BY filed) AS until
    FROM filing
),
placed AS (
    SELECT symbol, version.line, sk_companyid, version.companyid,
        greatest(filed, since) AS effectivedate, least(until, enddate) AS enddate
    FROM version
    JOIN steps.company
        ON company.companyid = version.companyid AND since < until AND filed < enddate
)
SELECT row_number() OVER () AS sk_securityid, symbol, line, sk_companyid, companyid,
    CAST(substr(line, 149, 12) AS NUMERIC(10, 2)) AS dividend, effectivedate, enddate,
    CASE WHEN lag(symbol) OVER (PARTITION BY symbol ORDER BY effectivedate) IS NULL
        THEN DATE '0001-01-01' ELSE effectivedate END AS since
FROM placed;

INSERT INTO tpcdi.dimsecurity
SELECT sk_securityid, symbol, steps.blank(substr(line, 34, 6)), st_name,
    steps.blank(substr(line, 44, 70)), steps.blank(substr(line, 114, 6)), sk_companyid,
    CAST(substr(line, 120, 13) AS BIGINT), CAST(substr(line, 133, 8) AS DATE),
    CAST(substr(line, 141, 8) AS DATE), dividend,
    enddate = DATE '9999-12-31', 1, effectivedate, enddate
FROM steps.security
JOIN tpcdi.statustype ON st_id = steps.blank(substr(line, 40, 4));
ANALYZE steps.security, tpcdi.dimsecurity;
