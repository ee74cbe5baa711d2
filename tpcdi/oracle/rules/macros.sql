-- What the paragraphs below say again and again.

CREATE TABLE steps.batch AS
SELECT batch, CAST(day AS DATE) AS day FROM raw.batchdate;

CREATE MACRO blank(field) AS NULLIF(trim(field), '');

CREATE MACRO date_id(day) AS year(day) * 10000 + month(day) * 100 + day(day);

CREATE MACRO time_id(moment) AS hour(moment) * 10000 + minute(moment) * 100 + second(moment);

-- a / b to two decimals, halves away from zero: in integers, for a quotient of decimals is a float.
CREATE MACRO hundredths(number) AS CAST(number * 100 AS HUGEINT);
CREATE MACRO quotient(a, b) AS CAST(
    sign(hundredths(a)) * sign(hundredths(b))
    * ((200 * abs(hundredths(a)) + abs(hundredths(b))) // (2 * abs(NULLIF(hundredths(b), 0))))
    AS DECIMAL(25, 0)) * CAST(0.01 AS DECIMAL(3, 2));

-- From when on a version is found by its key: a key's first version is found by earlier dates too.
CREATE MACRO since(key, effectivedate) AS
    CASE WHEN lag(key) OVER (PARTITION BY key ORDER BY effectivedate) IS NULL
    THEN DATE '0001-01-01' ELSE effectivedate END;
