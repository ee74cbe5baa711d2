-- The answers of the generator, of every audit file.

INSERT INTO tpcdi.audit
SELECT btrim(dataset), CAST(steps.blank(batchid) AS BIGINT), CAST(steps.blank(date) AS DATE),
    btrim(attribute), CAST(steps.blank(value) AS BIGINT),
    CAST(steps.blank(dvalue) AS NUMERIC(15, 5))
FROM raw.audit
WHERE btrim(dataset) <> 'DataSet';
