-- CMP, key CIK. Of a day the last record counts (reading 5), and none that equals the one before, or
-- whose status or industry there is not.

CREATE TABLE steps.finwire AS
SELECT rowid AS position, line, substr(line, 16, 3) AS kind,
    strptime(substr(line, 1, 15), '%Y%m%d-%H%M%S') AS pts, CAST(pts AS DATE) AS day
FROM raw.finwire;

CREATE TABLE steps.company AS
WITH filing AS (
    SELECT day, position, CAST(substr(line, 79, 10) AS BIGINT) AS companyid, pts,
        rtrim(substr(line, 19)) AS record
    FROM steps.finwire
    SEMI JOIN oracle.statustype ON st_id = blank(substr(line, 89, 4))
    SEMI JOIN oracle.industry ON in_id = blank(substr(line, 93, 2))
    WHERE kind = 'CMP'
    QUALIFY row_number() OVER (PARTITION BY companyid, day ORDER BY pts DESC, position DESC) = 1
),
change AS (
    SELECT * FROM filing
    QUALIFY lag(record) OVER (PARTITION BY companyid ORDER BY day) IS DISTINCT FROM record
)
SELECT row_number() OVER () AS sk_companyid, companyid, pts, position, day AS effectivedate,
    lead(day, 1, DATE '9999-12-31') OVER (PARTITION BY companyid ORDER BY day) AS enddate,
    -- Positions count from the record's name on, which is the 19th of the line.
    blank(substr(record, 1, 60)) AS name,
    blank(substr(record, 71, 4)) AS st_id,
    blank(substr(record, 75, 2)) AS in_id,
    blank(substr(record, 77, 4)) AS rating,
    regexp_full_match(rating, 'AAA|D|(AA|A|BBB|BB|B|CCC)[+-]?|CC|C') AS rated,
    strptime(blank(substr(record, 81, 8)), '%Y%m%d') AS foundingdate,
    blank(substr(record, 89, 80)) AS addressline1,
    blank(substr(record, 169, 80)) AS addressline2,
    blank(substr(record, 249, 12)) AS postalcode,
    blank(substr(record, 261, 25)) AS city,
    blank(substr(record, 286, 20)) AS stateprov,
    blank(substr(record, 306, 24)) AS country,
    blank(substr(record, 330, 46)) AS ceo,
    blank(substr(record, 376, 150)) AS description
FROM change;

INSERT INTO oracle.dimcompany BY NAME
SELECT company.* EXCLUDE (pts, position, st_id, in_id, rating, rated), st_name AS status,
    in_name AS industry,
    CASE WHEN rated THEN rating END AS sprating,
    CASE WHEN rated THEN NOT (rating LIKE 'A%' OR rating LIKE 'BBB%') END AS islowgrade,
    enddate = DATE '9999-12-31' AS iscurrent, 1 AS batchid
FROM steps.company
JOIN oracle.statustype USING (st_id)
JOIN oracle.industry USING (in_id);

INSERT INTO oracle.dimessages
SELECT day, batch, 'DimCompany', 'Invalid SPRating', 'Alert',
    'CO_ID = ' || companyid || ', CO_SP_RATE = ' || rating
FROM steps.company
JOIN oracle.dimcompany USING (sk_companyid, companyid)
JOIN steps.batch ON batch = batchid
WHERE NOT rated;

-- SEC and FIN name a company, by its CIK or by its name at that time: the record's length tells.
-- What comes before any company is that is entered on the day on which the first is. Of companies
-- that take one name on a day, the last to say so has it.
CREATE TABLE steps.of_company AS
WITH reference AS (
    SELECT *, substr(line, CASE kind WHEN 'SEC' THEN 161 ELSE 187 END) AS co
    FROM steps.finwire
    WHERE kind IN ('SEC', 'FIN')
),
founded AS (
    SELECT companyid, min(effectivedate) AS first FROM oracle.dimcompany GROUP BY companyid
),
named AS (
    SELECT name, companyid, effectivedate FROM steps.company
    QUALIFY row_number() OVER (PARTITION BY name, effectivedate ORDER BY pts DESC, position DESC)
        = 1
),
name AS (SELECT *, since(name, effectivedate) AS since FROM named)
SELECT by_number.*, greatest(day, first) AS entered
FROM (
    SELECT * EXCLUDE co, CAST(co AS BIGINT) AS companyid FROM reference WHERE length(co) <= 10
) AS by_number
JOIN founded USING (companyid)
UNION ALL BY NAME
SELECT by_name.* EXCLUDE co, companyid, greatest(day, effectivedate) AS entered
FROM (SELECT * REPLACE (blank(co) AS co) FROM reference WHERE length(co) > 10) AS by_name
ASOF JOIN name ON co = name AND day >= since;
