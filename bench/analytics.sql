-- The analytic queries of `python -m bench analytics`, over the warehouse of TPC-DI: joins,
-- aggregates and windows, in SQL that PostgreSQL and DuckDB read alike. Each begins with its name.

-- name: trades_by_status
SELECT status, type, count(*) AS trades, sum(quantity) AS quantity, sum(tradeprice * quantity) AS paid
FROM dimtrade GROUP BY status, type ORDER BY status, type;

-- name: brokers_by_commission
SELECT b.brokerid, b.branch, count(*) AS trades, sum(t.commission) AS commission
FROM dimtrade AS t JOIN dimbroker AS b ON b.sk_brokerid = t.sk_brokerid
GROUP BY b.brokerid, b.branch ORDER BY commission DESC NULLS LAST, b.brokerid LIMIT 10;

-- name: customers_by_tier
SELECT c.tier, count(DISTINCT c.customerid) AS customers, count(*) AS trades, sum(t.fee) AS fees
FROM dimtrade AS t JOIN dimcustomer AS c ON c.sk_customerid = t.sk_customerid
GROUP BY c.tier ORDER BY c.tier NULLS LAST;

-- name: trades_by_year
SELECT d.calendaryearid, count(*) AS trades, sum(t.quantity) AS quantity, sum(t.tax) AS tax
FROM dimtrade AS t JOIN dimdate AS d ON d.sk_dateid = t.sk_createdateid
GROUP BY d.calendaryearid ORDER BY d.calendaryearid;

-- name: trades_by_hour
SELECT h.hourid, h.markethoursflag, count(*) AS trades
FROM dimtrade AS t JOIN dimtime AS h ON h.sk_timeid = t.sk_createtimeid
GROUP BY h.hourid, h.markethoursflag ORDER BY h.hourid, h.markethoursflag;

-- name: industries_by_volume
SELECT co.industry, sum(m.volume) AS volume, max(m.dayhigh) AS high, min(m.daylow) AS low
FROM factmarkethistory AS m JOIN dimcompany AS co ON co.sk_companyid = m.sk_companyid
GROUP BY co.industry ORDER BY volume DESC, co.industry;

-- name: security_highs
SELECT s.symbol, max(m.fiftytwoweekhigh) AS high, min(m.fiftytwoweeklow) AS low
FROM factmarkethistory AS m JOIN dimsecurity AS s ON s.sk_securityid = m.sk_securityid
WHERE s.status = 'Active' GROUP BY s.symbol ORDER BY s.symbol;

-- name: closes_month_by_month
SELECT d.calendarmonthid, count(*) AS days, sum(m.closeprice) AS closes, sum(m.volume) AS volume
FROM factmarkethistory AS m JOIN dimdate AS d ON d.sk_dateid = m.sk_dateid
GROUP BY d.calendarmonthid ORDER BY d.calendarmonthid;

-- name: moving_closes
SELECT sk_securityid, sk_dateid, closeprice,
    sum(closeprice) OVER (PARTITION BY sk_securityid ORDER BY sk_dateid ROWS 6 PRECEDING) AS week
FROM factmarkethistory ORDER BY sk_securityid, sk_dateid LIMIT 1000;

-- name: largest_days
SELECT sk_securityid, sk_dateid, volume, place FROM (
    SELECT sk_securityid, sk_dateid, volume,
        row_number() OVER (PARTITION BY sk_securityid ORDER BY volume DESC, sk_dateid) AS place
    FROM factmarkethistory) AS ranked
WHERE place <= 3 ORDER BY sk_securityid, place;

-- name: holdings_by_customer
SELECT c.customerid, count(*) AS changes, sum(h.currentholding * h.currentprice) AS held
FROM factholdings AS h JOIN dimcustomer AS c ON c.sk_customerid = h.sk_customerid
GROUP BY c.customerid ORDER BY held DESC, c.customerid LIMIT 20;

-- name: holdings_after_trades
SELECT t.type, count(*) AS changes, sum(h.currentholding) AS held
FROM factholdings AS h JOIN dimtrade AS t ON t.tradeid = h.currenttradeid
GROUP BY t.type ORDER BY t.type;

-- name: running_holdings
SELECT sk_accountid, tradeid, currenttradeid, currentholding,
    sum(currentholding) OVER (PARTITION BY sk_accountid ORDER BY currenttradeid, tradeid) AS sofar
FROM factholdings ORDER BY sk_accountid, currenttradeid, tradeid LIMIT 1000;

-- name: cash_by_account
SELECT a.accountid, count(*) AS days, max(f.cash) AS most, min(f.cash) AS least
FROM factcashbalances AS f JOIN dimaccount AS a ON a.sk_accountid = f.sk_accountid
GROUP BY a.accountid ORDER BY most DESC, a.accountid LIMIT 50;

-- name: cash_day_by_day
SELECT sk_accountid, sk_dateid, cash,
    cash - lag(cash) OVER (PARTITION BY sk_accountid ORDER BY sk_dateid) AS change
FROM factcashbalances ORDER BY sk_accountid, sk_dateid LIMIT 1000;

-- name: watched_securities
SELECT s.symbol, count(*) AS watches, count(w.sk_dateid_dateremoved) AS removed
FROM factwatches AS w JOIN dimsecurity AS s ON s.sk_securityid = w.sk_securityid
GROUP BY s.symbol ORDER BY watches DESC, s.symbol LIMIT 20;

-- name: watched_and_not_held
SELECT count(*) AS watches FROM factwatches AS w
WHERE NOT EXISTS (
    SELECT 1 FROM factholdings AS h
    WHERE h.sk_customerid = w.sk_customerid AND h.sk_securityid = w.sk_securityid);

-- name: earnings_by_year
SELECT co.name, f.fi_year, sum(f.fi_revenue) AS revenue, sum(f.fi_net_earn) AS earned
FROM financial AS f JOIN dimcompany AS co ON co.sk_companyid = f.sk_companyid
WHERE co.iscurrent GROUP BY co.name, f.fi_year ORDER BY co.name, f.fi_year;

-- name: prospects_who_trade
WITH traders AS (
    SELECT c.agencyid, count(*) AS trades FROM dimtrade AS t
    JOIN dimcustomer AS c ON c.sk_customerid = t.sk_customerid
    WHERE c.agencyid IS NOT NULL GROUP BY c.agencyid)
SELECT p.maritalstatus, p.ownorrentflag, count(*) AS prospects, sum(traders.trades) AS trades
FROM prospect AS p LEFT JOIN traders ON traders.agencyid = p.agencyid
GROUP BY p.maritalstatus, p.ownorrentflag
ORDER BY p.maritalstatus NULLS LAST, p.ownorrentflag NULLS LAST;

-- name: large_trades_of_large_customers
SELECT c.lastname, t.tradeid, t.quantity, s.symbol
FROM dimtrade AS t
JOIN dimcustomer AS c ON c.sk_customerid = t.sk_customerid
JOIN dimsecurity AS s ON s.sk_securityid = t.sk_securityid
WHERE c.networth > 500000 AND t.quantity > (SELECT avg(quantity) FROM dimtrade)
ORDER BY t.quantity DESC, t.tradeid LIMIT 100;
