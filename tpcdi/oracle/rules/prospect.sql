-- Prospect, a full file each batch: what is new, what has changed, and what the table then holds.

CREATE MACRO nameplate(income, numbercars, numberchildren, age, creditrating, numbercreditcards,
    networth) AS blank(concat_ws('+',
        CASE WHEN networth > 1000000 OR income > 200000 THEN 'HighValue' END,
        CASE WHEN numberchildren > 3 OR numbercreditcards > 5 THEN 'Expenses' END,
        CASE WHEN age > 45 THEN 'Boomer' END,
        CASE WHEN income < 50000 OR creditrating < 600 OR networth < 100000 THEN 'MoneyAlert' END,
        CASE WHEN numbercars > 3 OR numbercreditcards > 7 THEN 'Spender' END,
        CASE WHEN age < 25 AND networth > 1000000 THEN 'Inherited' END));

-- Who somebody is; with NULL in it, but for the second line of the address, nobody.
CREATE MACRO person(lastname, firstname, addressline1, addressline2, postalcode) AS
    upper(lastname || chr(31) || firstname || chr(31) || addressline1 || chr(31)
        || coalesce(addressline2, '') || chr(31) || postalcode);

-- What a file says of a prospect, and whether that is new, or other than what was said before.
CREATE TABLE steps.prospect_row AS
WITH told AS (
    SELECT *, row(*COLUMNS(* EXCLUDE (batch))) AS record FROM raw.prospect
),
compared AS (
    SELECT *, lag(batch) OVER of_agency IS NULL AS new,
        lag(record) OVER of_agency IS DISTINCT FROM record AS changed
    FROM told
    WINDOW of_agency AS (PARTITION BY agencyid ORDER BY batch)
)
SELECT * EXCLUDE (record) REPLACE (
        CAST(income AS BIGINT) AS income, CAST(numbercars AS BIGINT) AS numbercars,
        CAST(numberchildren AS BIGINT) AS numberchildren, CAST(age AS BIGINT) AS age,
        CAST(creditrating AS BIGINT) AS creditrating, CAST(networth AS BIGINT) AS networth,
        CAST(numbercreditcards AS BIGINT) AS numbercreditcards),
    max(CASE WHEN changed THEN batch END) OVER (PARTITION BY agencyid ORDER BY batch) AS last_change
FROM compared;

-- What the table holds after each batch: who is not in the file any more stays.
CREATE TABLE steps.prospect_at AS
SELECT batch.batch AS after, prospect_row.* EXCLUDE (new, changed),
    nameplate(income, numbercars, numberchildren, age, creditrating, numbercreditcards, networth)
        AS marketingnameplate,
    person(lastname, firstname, addressline1, addressline2, postalcode) AS person
FROM steps.batch
JOIN steps.prospect_row ON prospect_row.batch <= batch.batch
QUALIFY row_number() OVER (PARTITION BY after, agencyid ORDER BY prospect_row.batch DESC) = 1;

INSERT INTO oracle.dimessages
WITH counted AS (
    SELECT day, batch, count(agencyid) AS source, count(*) FILTER (WHERE new) AS inserted,
        count(*) FILTER (WHERE changed AND NOT new) AS updated
    FROM steps.batch LEFT JOIN steps.prospect_row USING (batch)
    GROUP BY day, batch
)
SELECT day, batch, 'Prospect', 'Inserted rows', 'Status', inserted FROM counted
UNION ALL
SELECT day, batch, 'Prospect', 'Source rows', 'Status', source FROM counted WHERE batch > 1
UNION ALL
SELECT day, batch, 'Prospect', 'Updated rows', 'Status', updated FROM counted WHERE batch > 1;
