-- The customers' history: each field as it was last said, once for each day with a word on them.

CREATE TABLE steps.action AS
SELECT *, CAST(actionts AS DATE) AS day, CAST(c_id AS BIGINT) AS customerid,
    row_number() OVER (ORDER BY CAST(actionts AS TIMESTAMP), ctid) AS position
FROM raw.action;
CREATE INDEX ON steps.action (customerid) WHERE actiontype = 'INACT';
ANALYZE steps.action;

CREATE TABLE steps.customer_state AS
WITH carried AS (
    SELECT customerid, day, position,
        steps.said(jsonb_strip_nulls(jsonb_build_object(
            'status', CASE actiontype WHEN 'NEW' THEN 'Active' WHEN 'INACT' THEN 'Inactive' END,
            'taxid', c_tax_id, 'lastname', c_l_name, 'firstname', c_f_name,
            'middleinitial', c_m_name, 'gender', c_gndr, 'tier', c_tier, 'dob', c_dob,
            'addressline1', c_adline1, 'addressline2', c_adline2, 'postalcode', c_zipcode,
            'city', c_city, 'stateprov', c_state_prov, 'country', c_ctry,
            'lcl_tx_id', c_lcl_tx_id, 'nat_tx_id', c_nat_tx_id,
            'email1', c_prim_email, 'email2', c_alt_email,
            'phone1', c_phone_1 || steps.phone(c_ctry_code_1, c_area_code_1, c_local_1, c_ext_1),
            'phone2', c_phone_2 || steps.phone(c_ctry_code_2, c_area_code_2, c_local_2, c_ext_2),
            'phone3', c_phone_3 || steps.phone(c_ctry_code_3, c_area_code_3, c_local_3, c_ext_3)
        ))) OVER (PARTITION BY customerid ORDER BY position) AS said
    FROM steps.action
    WHERE actiontype IN ('NEW', 'UPDCUST', 'INACT')
),
daily AS (
    SELECT DISTINCT ON (customerid, day) * FROM carried ORDER BY customerid, day, position DESC
)
SELECT customerid, day AS effectivedate,
    lead(day, 1, DATE '9999-12-31') OVER of_customer AS enddate,
    CASE WHEN row_number() OVER of_customer = 1 THEN DATE '0001-01-01' ELSE day END AS since,
    row_number() OVER () AS sk_customerid, said
FROM daily
WINDOW of_customer AS (PARTITION BY customerid ORDER BY day);

CREATE TABLE steps.matched AS
SELECT DISTINCT ON (person) person, agencyid, creditrating, networth, marketingnameplate
FROM steps.prospect
WHERE person IS NOT NULL
ORDER BY person, agencyid;
ANALYZE steps.customer_state, steps.matched;

INSERT INTO tpcdi.dimcustomer
SELECT sk_customerid, customerid, NULLIF(taxid, ''), NULLIF(status, ''), lastname, firstname,
    NULLIF(middleinitial, ''),
    CASE WHEN upper(gender) IN ('M', 'F') THEN upper(gender) ELSE 'U' END,
    CAST(NULLIF(tier, '') AS BIGINT), CAST(NULLIF(dob, '') AS DATE), addressline1, addressline2,
    postalcode, NULLIF(city, ''), NULLIF(stateprov, ''), NULLIF(country, ''), NULLIF(phone1, ''),
    NULLIF(phone2, ''), NULLIF(phone3, ''), NULLIF(email1, ''), NULLIF(email2, ''),
    national.tx_name, national.tx_rate, local.tx_name, local.tx_rate,
    agencyid, creditrating, networth, marketingnameplate,
    enddate = DATE '9999-12-31', 1, effectivedate, enddate
FROM (
    SELECT sk_customerid, customerid, effectivedate, enddate, of.taxid, of.status,
        NULLIF(of.lastname, '') AS lastname, NULLIF(of.firstname, '') AS firstname,
        of.middleinitial, of.gender, of.tier, of.dob,
        NULLIF(of.addressline1, '') AS addressline1, NULLIF(of.addressline2, '') AS addressline2,
        NULLIF(of.postalcode, '') AS postalcode, of.city, of.stateprov, of.country,
        of.phone1, of.phone2, of.phone3, of.email1, of.email2, of.lcl_tx_id, of.nat_tx_id
    FROM steps.customer_state
    CROSS JOIN LATERAL jsonb_to_record(said) AS of (
        taxid TEXT, status TEXT, lastname TEXT, firstname TEXT, middleinitial TEXT, gender TEXT,
        tier TEXT, dob TEXT, addressline1 TEXT, addressline2 TEXT, postalcode TEXT, city TEXT,
        stateprov TEXT, country TEXT, phone1 TEXT, phone2 TEXT, phone3 TEXT, email1 TEXT,
        email2 TEXT, lcl_tx_id TEXT, nat_tx_id TEXT
    )
) AS state
-- Demographics are of the last version alone.
LEFT JOIN steps.matched ON enddate = DATE '9999-12-31'
    AND person = steps.person(lastname, firstname, addressline1, addressline2, postalcode)
LEFT JOIN tpcdi.taxrate AS national ON national.tx_id = nat_tx_id
LEFT JOIN tpcdi.taxrate AS local ON local.tx_id = lcl_tx_id;
ANALYZE tpcdi.dimcustomer;

INSERT INTO tpcdi.dimessages
SELECT CAST(day AS DATE), 1, 'DimCustomer', 'Invalid customer tier', 'Alert',
    'C_ID = ' || customerid || ', C_TIER = ' || coalesce(CAST(tier AS TEXT), '')
FROM tpcdi.dimcustomer, raw.batchdate
WHERE coalesce(tier, 0) NOT IN (1, 2, 3)
UNION ALL
SELECT CAST(day AS DATE), 1, 'DimCustomer', 'DOB out of range', 'Alert',
    'C_ID = ' || customerid || ', C_DOB = ' || dob
FROM tpcdi.dimcustomer, raw.batchdate
WHERE dob < CAST(day AS DATE) - INTERVAL '100 years' OR dob > CAST(day AS DATE);
