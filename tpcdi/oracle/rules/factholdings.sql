-- Holdings: one row for each row of HoldingHistory, dated and placed as the trade that made it, with
-- the first price that this had when it was over.

INSERT INTO oracle.factholdings BY NAME
SELECT hh_h_t_id AS tradeid, hh_t_id AS currenttradeid, sk_customerid, sk_accountid, sk_securityid,
    sk_companyid, sk_closedateid AS sk_dateid, sk_closetimeid AS sk_timeid,
    price AS currentprice, hh_after_qty AS currentholding,
    greatest(holdinghistory.batch, priced) AS batchid
FROM raw.holdinghistory
JOIN oracle.dimtrade ON dimtrade.tradeid = CAST(hh_t_id AS BIGINT)
JOIN steps.closing ON closing.t_id = hh_t_id AND price IS NOT NULL;
