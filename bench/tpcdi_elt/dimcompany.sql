-- CMP, key CIK: of a day the last record counts, and none that equals the one before.

CREATE TABLE steps.company AS
WITH filing AS (
    SELECT DISTINCT ON (companyid, day) *
    FROM (
        SELECT ctid AS position, substr(line, 1, 15) AS pts,
            CAST(left(line, 8) AS DATE) AS day, CAST(substr(line, 79, 10) AS BIGINT) AS companyid,
            line, rtrim(substr(line, 19)) AS record
        FROM raw.finwire
        WHERE substr(line, 16, 3) = 'CMP'
    ) AS told
    ORDER BY companyid, day, pts DESC, position DESC
),
compared AS (
    SELECT *, lag(record) OVER (PARTITION BY companyid ORDER BY day) IS DISTINCT FROM record AS new
    FROM filing
)
SELECT row_number() OVER () AS sk_companyid, companyid, day AS effectivedate,
    lead(day, 1, DATE '9999-12-31') OVER of_company AS enddate,
    CASE WHEN row_number() OVER of_company = 1 THEN DATE '0001-01-01' ELSE day END AS since,
    steps.blank(substr(line, 19, 60)) AS name, steps.blank(substr(line, 89, 4)) AS st_id,
    steps.blank(substr(line, 93, 2)) AS in_id, steps.blank(substr(line, 95, 4)) AS rating,
    steps.blank(substr(line, 95, 4)) ~ '^(AAA|D|(AA|A|BBB|BB|B|CCC)[+-]?|CC|C)$' AS rated,
    line
FROM compared
WHERE new
WINDOW of_company AS (PARTITION BY companyid ORDER BY day);

INSERT INTO tpcdi.dimcompany
SELECT sk_companyid, companyid, st_name, name, in_name, CASE WHEN rated THEN rating END,
    CASE WHEN rated THEN NOT (rating LIKE 'A%' OR rating LIKE 'BBB%') END,
    steps.blank(substr(line, 348, 46)), steps.blank(substr(line, 107, 80)),
    steps.blank(substr(line, 187, 80)), steps.blank(substr(line, 267, 12)),
    steps.blank(substr(line, 279, 25)), steps.blank(substr(line, 304, 20)),
    steps.blank(substr(line, 324, 24)), steps.blank(substr(line, 394, 150)),
    CAST(steps.blank(substr(line, 99, 8)) AS DATE),
    enddate = DATE '9999-12-31', 1, effectivedate, enddate
FROM steps.company
JOIN tpcdi.statustype USING (st_id)
JOIN tpcdi.industry USING (in_id);

INSERT INTO tpcdi.dimessages
SELECT CAST(day AS DATE), 1, 'DimCompany', 'Invalid SPRating', 'Alert',
    'CO_ID = ' || companyid || ', CO_SP_RATE = ' || rating
FROM steps.company, raw.batchdate
WHERE NOT rated;

-- SEC and FIN name a company, by its CIK or by its name at that time: the record's length tells.
CREATE TABLE steps.company_name AS
SELECT name, companyid,
    CASE WHEN row_number() OVER of_name = 1 THEN DATE '0001-01-01' ELSE effectivedate END AS since,
    lead(effectivedate, 1, DATE '9999-12-31') OVER of_name AS until
FROM steps.company
WINDOW of_name AS (PARTITION BY name ORDER BY effectivedate, sk_companyid);
ANALYZE steps.company, steps.company_name, tpcdi.dimcompany;

CREATE TABLE steps.of_company AS
WITH reference AS (
    SELECT kind, day, position, pts, line, substr(line, CASE kind WHEN 'SEC' THEN 161 ELSE 187 END)
        AS co
    FROM (
        SELECT ctid AS position, line, substr(line, 16, 3) AS kind, substr(line, 1, 15) AS pts,
            CAST(left(line, 8) AS DATE) AS day
        FROM raw.finwire
        WHERE substr(line, 16, 3) IN ('SEC', 'FIN')
    ) AS told
)
SELECT kind, day, position, pts, line, CAST(co AS BIGINT) AS companyid
FROM reference
WHERE length(co) <= 10
UNION ALL
SELECT kind, day, position, pts, line, companyid
FROM reference
JOIN steps.company_name ON name = steps.blank(co) AND day >= since AND day < until
WHERE length(co) > 10;
ANALYZE steps.of_company;
