-- The customers' history: actions of CustomerMgmt.xml in order of time, then Customer.txt.

CREATE MACRO phone(ctry, area, local, ext) AS CASE
    WHEN blank(local) IS NULL THEN ''
    WHEN blank(area) IS NULL THEN local
    WHEN blank(ctry) IS NULL THEN '(' || area || ') ' || local
    ELSE '+' || ctry || ' (' || area || ') ' || local
    END || CASE WHEN blank(local) IS NULL THEN '' ELSE coalesce(ext, '') END;

-- `position` orders whatever happens to customers and accounts, over all batches.
CREATE TABLE steps.action AS
SELECT *, CAST(actionts AS TIMESTAMP) AS ts, CAST(ts AS DATE) AS day,
    row_number() OVER (ORDER BY ts, rowid) AS position
FROM raw.action;

CREATE MACRO position_in_batch(batch, position) AS batch * 1000000000000 + position;

-- What an event says of a customer. NULL: it says nothing, and '': that there is none.
CREATE TABLE steps.customer_event AS
SELECT batch, day, position, c_id, actiontype = 'NEW' AS begins,
    CASE actiontype WHEN 'NEW' THEN 'Active' WHEN 'INACT' THEN 'Inactive' END AS status,
    c_tax_id, c_l_name, c_f_name, c_m_name, c_gndr, c_tier, c_dob, c_adline1, c_adline2,
    c_zipcode, c_city, c_state_prov, c_ctry, c_lcl_tx_id, c_nat_tx_id,
    c_prim_email AS c_email_1, c_alt_email AS c_email_2,
    c_phone_1 || phone(c_ctry_code_1, c_area_code_1, c_local_1, c_ext_1) AS phone1,
    c_phone_2 || phone(c_ctry_code_2, c_area_code_2, c_local_2, c_ext_2) AS phone2,
    c_phone_3 || phone(c_ctry_code_3, c_area_code_3, c_local_3, c_ext_3) AS phone3
FROM steps.action
WHERE actiontype IN ('NEW', 'UPDCUST', 'INACT')
UNION ALL BY NAME
SELECT customer.batch, day, position_in_batch(customer.batch, customer.rowid) AS position, c_id,
    true AS begins, st_name AS status,
    coalesce(COLUMNS(['c_tax_id', 'c_l_name', 'c_f_name', 'c_m_name', 'c_gndr', 'c_tier', 'c_dob',
        'c_adline1', 'c_adline2', 'c_zipcode', 'c_city', 'c_state_prov', 'c_ctry', 'c_lcl_tx_id',
        'c_nat_tx_id', 'c_email_1', 'c_email_2']), ''),
    phone(c_ctry_1, c_area_1, c_local_1, c_ext_1) AS phone1,
    phone(c_ctry_2, c_area_2, c_local_2, c_ext_2) AS phone2,
    phone(c_ctry_3, c_area_3, c_local_3, c_ext_3) AS phone3
FROM raw.customer
JOIN steps.batch USING (batch)
JOIN oracle.statustype ON st_id = c_st_id;

-- How a customer is at the end of a day on which something was said: each field as last said, since
-- the customer was last said whole; what comes before that changes nobody.
CREATE TABLE steps.customer_state AS
WITH numbered AS (
    SELECT *, count(*) FILTER (WHERE begins) OVER (PARTITION BY c_id ORDER BY position) AS nth
    FROM steps.customer_event
),
carried AS (
    SELECT batch, day, position, c_id,
        last_value(COLUMNS(* EXCLUDE (batch, day, position, c_id, begins, nth)) IGNORE NULLS)
            OVER so_far
    FROM numbered
    WHERE nth > 0
    WINDOW so_far AS (PARTITION BY c_id, nth ORDER BY position)
)
SELECT batch, day, position, CAST(c_id AS BIGINT) AS customerid,
    NULLIF(COLUMNS(* EXCLUDE (batch, day, position, c_id)), '')
FROM carried
QUALIFY row_number() OVER (PARTITION BY c_id, day ORDER BY position DESC) = 1;

-- How every customer is after each batch, matched with the prospects there are then.
CREATE TABLE steps.customer_at AS
WITH latest AS (
    SELECT batch.batch AS after, batch.day AS after_day, state.*,
        person(c_l_name, c_f_name, c_adline1, c_adline2, c_zipcode) AS person
    FROM steps.batch
    JOIN steps.customer_state AS state ON state.batch <= batch.batch
    QUALIFY row_number() OVER (PARTITION BY after, customerid ORDER BY state.day DESC) = 1
)
SELECT latest.*, agencyid, creditrating, networth, marketingnameplate,
    row(agencyid, creditrating, networth, marketingnameplate) AS demographics
FROM latest
LEFT JOIN steps.prospect_at AS prospect USING (after, person)
QUALIFY row_number() OVER (PARTITION BY after, customerid ORDER BY agencyid) = 1;

-- In batch 1 every state is a version, and the latest has demographics; later, every batch in which
-- something was said of the customer, or in which the demographics are others (reading 2).
CREATE TABLE steps.customer_version AS
SELECT after AS batchid, CASE batch WHEN after THEN day ELSE after_day END AS effectivedate,
    * EXCLUDE (after, after_day, batch, day, person, demographics)
FROM steps.customer_at
QUALIFY batch = after OR after > 1
    AND lag(demographics) OVER (PARTITION BY customerid ORDER BY after)
        IS DISTINCT FROM demographics
UNION ALL BY NAME
SELECT batch AS batchid, day AS effectivedate, * EXCLUDE (batch, day)
FROM steps.customer_state
WHERE batch = 1
QUALIFY row_number() OVER (PARTITION BY customerid ORDER BY day DESC) > 1;

INSERT INTO oracle.dimcustomer BY NAME
SELECT row_number() OVER () AS sk_customerid, customerid, c_tax_id AS taxid, status,
    c_l_name AS lastname, c_f_name AS firstname, c_m_name AS middleinitial,
    CASE WHEN upper(c_gndr) IN ('M', 'F') THEN upper(c_gndr) ELSE 'U' END AS gender,
    c_tier AS tier, c_dob AS dob, c_adline1 AS addressline1, c_adline2 AS addressline2,
    c_zipcode AS postalcode, c_city AS city, c_state_prov AS stateprov, c_ctry AS country,
    phone1, phone2, phone3, c_email_1 AS email1, c_email_2 AS email2,
    national.tx_name AS nationaltaxratedesc, national.tx_rate AS nationaltaxrate,
    local.tx_name AS localtaxratedesc, local.tx_rate AS localtaxrate,
    agencyid, creditrating, networth, marketingnameplate,
    batchid, effectivedate, enddate, enddate = DATE '9999-12-31' AS iscurrent
FROM (
    SELECT *, lead(effectivedate, 1, DATE '9999-12-31') OVER (
        PARTITION BY customerid ORDER BY effectivedate) AS enddate
    FROM steps.customer_version
) AS version
LEFT JOIN oracle.taxrate AS national ON national.tx_id = c_nat_tx_id
LEFT JOIN oracle.taxrate AS local ON local.tx_id = c_lcl_tx_id;

INSERT INTO oracle.dimessages
SELECT day, batchid, 'DimCustomer', 'Invalid customer tier', 'Alert',
    'C_ID = ' || customerid || ', C_TIER = ' || coalesce(CAST(tier AS VARCHAR), '')
FROM oracle.dimcustomer JOIN steps.batch ON batch = batchid
WHERE coalesce(tier, 0) NOT IN (1, 2, 3)
UNION ALL
SELECT day, batchid, 'DimCustomer', 'DOB out of range', 'Alert',
    'C_ID = ' || customerid || ', C_DOB = ' || dob
FROM oracle.dimcustomer JOIN steps.batch ON batch = batchid
WHERE dob < day - INTERVAL 100 YEAR OR dob > day;

CREATE VIEW steps.customer_asof AS
SELECT *, since(customerid, effectivedate) AS since FROM oracle.dimcustomer;
