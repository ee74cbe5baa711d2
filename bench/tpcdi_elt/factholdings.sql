-- Holdings: one row for each row of HoldingHistory, dated and placed as the trade that made it.

INSERT INTO tpcdi.factholdings
SELECT CAST(hh_h_t_id AS BIGINT), CAST(hh_t_id AS BIGINT), sk_customerid, sk_accountid,
    sk_securityid, sk_companyid, sk_closedateid, sk_closetimeid, tradeprice,
    CAST(hh_after_qty AS BIGINT), 1
FROM raw.holdinghistory
JOIN tpcdi.dimtrade ON tradeid = CAST(hh_t_id AS BIGINT);
