-- SEC, key Symbol: a version for every day on which one was entered, or its company has changed.
-- One of a status that there is not is not entered.

INSERT INTO oracle.dimsecurity BY NAME
WITH filing AS (
    SELECT entered, companyid, line, blank(substr(line, 19, 15)) AS symbol, st_name AS status
    FROM steps.of_company
    JOIN oracle.statustype ON st_id = blank(substr(line, 40, 4))
    WHERE kind = 'SEC'
    QUALIFY row_number() OVER (PARTITION BY symbol, entered ORDER BY pts DESC, position DESC) = 1
),
version AS (
    SELECT *,
        lead(entered, 1, DATE '9999-12-31') OVER (PARTITION BY symbol ORDER BY entered) AS until
    FROM filing
)
SELECT row_number() OVER () AS sk_securityid, symbol,
    blank(substr(line, 34, 6)) AS issue, version.status, blank(substr(line, 44, 70)) AS name,
    blank(substr(line, 114, 6)) AS exchangeid, sk_companyid,
    trim(substr(line, 120, 13)) AS sharesoutstanding,
    strptime(substr(line, 133, 8), '%Y%m%d') AS firsttrade,
    strptime(substr(line, 141, 8), '%Y%m%d') AS firsttradeonexchange,
    trim(substr(line, 149, 12)) AS dividend,
    greatest(entered, company.effectivedate) AS effectivedate,
    least(until, company.enddate) AS enddate,
    least(until, company.enddate) = DATE '9999-12-31' AS iscurrent, 1 AS batchid
FROM version
JOIN oracle.dimcompany AS company
    ON company.companyid = version.companyid
    AND company.effectivedate < until AND entered < company.enddate;

CREATE VIEW steps.security_asof AS
SELECT *, since(symbol, effectivedate) AS since FROM oracle.dimsecurity;
