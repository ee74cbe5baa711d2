-- The prospects, typed, and who they are: customers look for themselves among them.

CREATE TABLE steps.prospect AS
SELECT typed.*,
    NULLIF(concat_ws('+',
        CASE WHEN networth > 1000000 OR income > 200000 THEN 'HighValue' END,
        CASE WHEN numberchildren > 3 OR numbercreditcards > 5 THEN 'Expenses' END,
        CASE WHEN age > 45 THEN 'Boomer' END,
        CASE WHEN income < 50000 OR creditrating < 600 OR networth < 100000 THEN 'MoneyAlert' END,
        CASE WHEN numbercars > 3 OR numbercreditcards > 7 THEN 'Spender' END,
        CASE WHEN age < 25 AND networth > 1000000 THEN 'Inherited' END), '') AS marketingnameplate
FROM (
    SELECT agencyid, lastname, firstname, middleinitial, gender, addressline1, addressline2,
        postalcode, city, state, country, phone, maritalstatus, ownorrentflag, employer,
        CAST(income AS BIGINT) AS income, CAST(numbercars AS BIGINT) AS numbercars,
        CAST(numberchildren AS BIGINT) AS numberchildren, CAST(age AS BIGINT) AS age,
        CAST(creditrating AS BIGINT) AS creditrating,
        CAST(numbercreditcards AS BIGINT) AS numbercreditcards,
        CAST(networth AS BIGINT) AS networth,
        steps.person(lastname, firstname, addressline1, addressline2, postalcode) AS person
    FROM raw.prospect
) AS typed;
ANALYZE steps.prospect;
