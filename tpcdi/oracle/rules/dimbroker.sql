-- HR rows with JobCode 314, valid from the first day of DimDate on; of several of one broker the last.

INSERT INTO oracle.dimbroker BY NAME
SELECT row_number() OVER () AS sk_brokerid, employeeid AS brokerid, managerid, firstname, lastname,
    middleinitial, branch, office, phone, true AS iscurrent, 1 AS batchid,
    coalesce((SELECT min(datevalue) FROM oracle.dimdate), DATE '1950-01-01') AS effectivedate,
    DATE '9999-12-31' AS enddate
FROM raw.hr
WHERE batch = 1 AND jobcode = '314'
QUALIFY row_number() OVER (PARTITION BY employeeid ORDER BY rowid DESC) = 1;
