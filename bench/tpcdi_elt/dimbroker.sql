-- HR rows with JobCode 314, valid from the first day of DimDate on.

INSERT INTO tpcdi.dimbroker
SELECT row_number() OVER (), CAST(employeeid AS BIGINT), CAST(managerid AS BIGINT), firstname,
    lastname, middleinitial, branch, office, phone, TRUE, 1,
    (SELECT min(datevalue) FROM tpcdi.dimdate), DATE '9999-12-31'
FROM raw.hr
WHERE jobcode = '314';
ANALYZE tpcdi.dimbroker;
