-- DimDate, DimTime, Industry, StatusType, TaxRate, TradeType: verbatim copies, batch 1 only.

INSERT INTO oracle.dimdate SELECT * EXCLUDE (batch) FROM raw.date WHERE batch = 1;
INSERT INTO oracle.dimtime SELECT * EXCLUDE (batch) FROM raw.time WHERE batch = 1;
INSERT INTO oracle.industry SELECT * EXCLUDE (batch) FROM raw.industry WHERE batch = 1;
INSERT INTO oracle.statustype SELECT * EXCLUDE (batch) FROM raw.statustype WHERE batch = 1;
INSERT INTO oracle.taxrate SELECT * EXCLUDE (batch) FROM raw.taxrate WHERE batch = 1;
INSERT INTO oracle.tradetype SELECT * EXCLUDE (batch) FROM raw.tradetype WHERE batch = 1;

-- Every audit file, without its header.
INSERT INTO oracle.audit BY NAME
SELECT trim(dataset) AS dataset, blank(batchid) AS batchid, blank(date) AS date,
    trim(attribute) AS attribute, blank(value) AS value, blank(dvalue) AS dvalue
FROM raw.audit
WHERE trim(dataset) <> 'DataSet';
