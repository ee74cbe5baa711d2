-- The accounts' history: a version for every day with a word on the account, or on its customer.

CREATE TABLE steps.account AS
WITH event AS (
    SELECT CAST(ca_id AS BIGINT) AS accountid, day, position, customerid, ca_b_id, ca_name,
        ca_tax_st, CASE WHEN actiontype IN ('NEW', 'ADDACCT') THEN 'Active'
            WHEN actiontype = 'CLOSEACCT' THEN 'Inactive' END AS status
    FROM steps.action
    WHERE ca_id IS NOT NULL
),
carried AS (
    SELECT accountid, day, position,
        steps.said(jsonb_strip_nulls(jsonb_build_object(
            'customerid', customerid, 'brokerid', ca_b_id, 'accountdesc', ca_name,
            'taxstatus', ca_tax_st, 'status', status,
            'status_position', CASE WHEN status IS NOT NULL THEN position END
        ))) OVER (PARTITION BY accountid ORDER BY position) AS said
    FROM event
),
daily AS (
    SELECT DISTINCT ON (accountid, day) * FROM carried ORDER BY accountid, day, position DESC
),
state AS (
    SELECT accountid, day, lead(day, 1, DATE '9999-12-31') OVER (
        PARTITION BY accountid ORDER BY day) AS until, of.*
    FROM daily
    CROSS JOIN LATERAL jsonb_to_record(said) AS of (
        customerid BIGINT, brokerid TEXT, accountdesc TEXT, taxstatus TEXT, status TEXT,
        status_position BIGINT
    )
),
version AS (
    SELECT accountid, state.customerid, sk_customerid, status, status_position, accountdesc,
        taxstatus, brokerid, greatest(day, since) AS effectivedate, least(until, enddate) AS enddate
    FROM state
    JOIN steps.customer_state AS customer
        ON customer.customerid = state.customerid AND since < until AND day < enddate
)
SELECT row_number() OVER () AS sk_accountid, accountid, sk_brokerid, sk_customerid,
    CASE WHEN EXISTS (
        SELECT FROM steps.action AS left_us
        WHERE actiontype = 'INACT' AND left_us.customerid = version.customerid
            AND day <= version.effectivedate AND position > status_position
    ) THEN 'Inactive' ELSE version.status END AS status,
    NULLIF(accountdesc, '') AS accountdesc, CAST(NULLIF(taxstatus, '') AS BIGINT) AS taxstatus,
    version.effectivedate, version.enddate,
    CASE WHEN lag(accountid) OVER (PARTITION BY accountid ORDER BY version.effectivedate) IS NULL
        THEN DATE '0001-01-01' ELSE version.effectivedate END AS since
FROM version
JOIN tpcdi.dimbroker AS broker ON broker.brokerid = CAST(NULLIF(version.brokerid, '') AS BIGINT);

INSERT INTO tpcdi.dimaccount
SELECT sk_accountid, accountid, sk_brokerid, sk_customerid, status, accountdesc, taxstatus,
    enddate = DATE '9999-12-31', 1, effectivedate, enddate
FROM steps.account;
ANALYZE steps.account, tpcdi.dimaccount;
