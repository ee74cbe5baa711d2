-- The accounts' history: what is said of them, and that of their customers.

-- What an event says of an account, as of customers: NULL is nothing, and '' that there is none.
CREATE TABLE steps.account_event AS
SELECT batch, day, position, ca_id, c_id, actiontype IN ('NEW', 'ADDACCT') AS begins,
    coalesce(ca_b_id, CASE WHEN begins THEN '' END) AS ca_b_id, ca_name, ca_tax_st,
    CASE WHEN actiontype IN ('NEW', 'ADDACCT') THEN 'Active'
        WHEN actiontype = 'CLOSEACCT' THEN 'Inactive' END AS status
FROM steps.action
WHERE ca_id IS NOT NULL AND (begins OR actiontype IN ('UPDACCT', 'CLOSEACCT'))
UNION ALL
SELECT account.batch, day, position_in_batch(account.batch, account.rowid), ca_id, ca_c_id,
    true, coalesce(ca_b_id, ''), coalesce(ca_name, ''), coalesce(ca_tax_st, ''), st_name
FROM raw.account
JOIN steps.batch USING (batch)
JOIN oracle.statustype ON st_id = ca_st_id;

-- When a customer went inactive: that counts after all that the day says of accounts (reading 7). An
-- action of it counts also where the customer was inactive before.
CREATE TABLE steps.inactivation AS
SELECT day, customerid
FROM steps.customer_state AS state
QUALIFY status = 'Inactive'
    AND (lag(status) OVER (PARTITION BY customerid ORDER BY day) IS DISTINCT FROM 'Inactive'
        OR (customerid, day) IN (
            SELECT (CAST(c_id AS BIGINT), day) FROM steps.action WHERE actiontype = 'INACT'
        ));

-- What counts of what is said of accounts: what names no broker, or one that there is, of a customer
-- who is there; and after an opening what names the customer for whom it was.
CREATE TABLE steps.account_told AS
WITH numbered AS (
    SELECT event.*, count(*) FILTER (WHERE begins) OVER (PARTITION BY ca_id ORDER BY position) AS nth
    FROM steps.account_event AS event
    SEMI JOIN steps.customer_state AS known
        ON known.customerid = CAST(c_id AS BIGINT) AND known.day <= event.day
    WHERE ca_b_id IS NULL
        OR TRY_CAST(ca_b_id AS BIGINT) IN (SELECT brokerid FROM oracle.dimbroker)
)
SELECT * FROM numbered
WHERE nth > 0
QUALIFY c_id = first_value(c_id) OVER (PARTITION BY ca_id, nth ORDER BY position);

-- How an account is at the end of a day: of what its opening says, and what follows that.
CREATE TABLE steps.account_state AS
WITH carried AS (
    SELECT batch, day, position, CAST(ca_id AS BIGINT) AS accountid,
        last_value(CAST(c_id AS BIGINT) IGNORE NULLS) OVER so_far AS customerid,
        last_value(ca_b_id IGNORE NULLS) OVER so_far AS brokerid,
        last_value(ca_name IGNORE NULLS) OVER so_far AS accountdesc,
        last_value(ca_tax_st IGNORE NULLS) OVER so_far AS taxstatus,
        last_value(status IGNORE NULLS) OVER so_far AS status,
        max(day) FILTER (WHERE status IS NOT NULL) OVER so_far AS status_day
    FROM steps.account_told
    WINDOW so_far AS (PARTITION BY ca_id, nth ORDER BY position)
),
daily AS (
    SELECT * FROM carried
    QUALIFY row_number() OVER (PARTITION BY accountid, day ORDER BY position DESC) = 1
)
SELECT *, lead(day, 1, DATE '9999-12-31') OVER (PARTITION BY accountid ORDER BY day) AS until
FROM daily;

-- A version for every day on which something was said of the account, or its customer changed.
INSERT INTO oracle.dimaccount BY NAME
WITH version AS (
    SELECT accountid, account.customerid, sk_customerid, account.status, status_day,
        NULLIF(brokerid, '') AS brokerid, NULLIF(accountdesc, '') AS accountdesc,
        NULLIF(taxstatus, '') AS taxstatus,
        CASE WHEN account.day >= since THEN account.batch ELSE customer.batchid END AS batchid,
        greatest(account.day, since) AS effectivedate, least(until, enddate) AS enddate
    FROM steps.account_state AS account
    JOIN steps.customer_asof AS customer
        ON customer.customerid = account.customerid AND since < until AND account.day < enddate
)
SELECT row_number() OVER () AS sk_accountid, accountid, sk_brokerid, sk_customerid,
    CASE WHEN EXISTS (
        FROM steps.inactivation
        WHERE inactivation.customerid = version.customerid
            AND day BETWEEN status_day AND effectivedate
    ) THEN 'Inactive' ELSE status END AS status,
    accountdesc, taxstatus, version.enddate = DATE '9999-12-31' AS iscurrent, version.batchid,
    version.effectivedate, version.enddate
FROM version
JOIN (SELECT sk_brokerid, brokerid FROM oracle.dimbroker) AS broker
    ON broker.brokerid = CAST(version.brokerid AS BIGINT);

CREATE VIEW steps.account_asof AS
SELECT *, since(accountid, effectivedate) AS since FROM oracle.dimaccount;
