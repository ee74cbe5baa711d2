-- FIN: the company as of PTS, one row for each record.

INSERT INTO tpcdi.financial
SELECT sk_companyid, CAST(substr(report.line, 19, 4) AS BIGINT),
    CAST(substr(report.line, 23, 1) AS BIGINT), CAST(substr(report.line, 24, 8) AS DATE),
    CAST(substr(report.line, 40, 17) AS NUMERIC), CAST(substr(report.line, 57, 17) AS NUMERIC),
    CAST(substr(report.line, 74, 12) AS NUMERIC), CAST(substr(report.line, 86, 12) AS NUMERIC),
    CAST(substr(report.line, 98, 12) AS NUMERIC), CAST(substr(report.line, 110, 17) AS NUMERIC),
    CAST(substr(report.line, 127, 17) AS NUMERIC), CAST(substr(report.line, 144, 17) AS NUMERIC),
    CAST(substr(report.line, 161, 13) AS BIGINT), CAST(substr(report.line, 174, 13) AS BIGINT)
FROM steps.of_company AS report
JOIN steps.company ON company.companyid = report.companyid AND day >= since AND day < enddate
WHERE kind = 'FIN';
ANALYZE tpcdi.financial;
