-- FIN: the company as of the day on which the report is entered, one row for each record.

INSERT INTO oracle.financial BY NAME
SELECT sk_companyid,
    trim(substr(line, 19, 4)) AS fi_year,
    trim(substr(line, 23, 1)) AS fi_qtr,
    strptime(substr(line, 24, 8), '%Y%m%d') AS fi_qtr_start_date,
    trim(substr(line, 40, 17)) AS fi_revenue,
    trim(substr(line, 57, 17)) AS fi_net_earn,
    trim(substr(line, 74, 12)) AS fi_basic_eps,
    trim(substr(line, 86, 12)) AS fi_dilut_eps,
    trim(substr(line, 98, 12)) AS fi_margin,
    trim(substr(line, 110, 17)) AS fi_inventory,
    trim(substr(line, 127, 17)) AS fi_assets,
    trim(substr(line, 144, 17)) AS fi_liability,
    trim(substr(line, 161, 13)) AS fi_out_basic,
    trim(substr(line, 174, 13)) AS fi_out_dilut
FROM (SELECT * FROM steps.of_company WHERE kind = 'FIN') AS report
ASOF JOIN oracle.dimcompany AS company
    ON company.companyid = report.companyid AND entered >= company.effectivedate;
