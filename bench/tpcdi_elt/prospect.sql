-- A prospect is a customer if a current one, who is active, is that person.

INSERT INTO tpcdi.prospect
SELECT agencyid, steps.date_id(CAST(day AS DATE)), steps.date_id(CAST(day AS DATE)), 1,
    coalesce(person IN (
        SELECT steps.person(lastname, firstname, addressline1, addressline2, postalcode)
        FROM tpcdi.dimcustomer
        WHERE iscurrent AND status = 'Active'
            AND steps.person(lastname, firstname, addressline1, addressline2, postalcode)
                IS NOT NULL
    ), FALSE),
    lastname, firstname, middleinitial, gender, addressline1, addressline2, postalcode, city,
    state, country, phone, income, numbercars, numberchildren, maritalstatus, age, creditrating,
    ownorrentflag, employer, numbercreditcards, networth, marketingnameplate
FROM steps.prospect, raw.batchdate;

INSERT INTO tpcdi.dimessages
SELECT CAST(day AS DATE), 1, 'Prospect', 'Inserted rows', 'Status', count(*)
FROM tpcdi.prospect, raw.batchdate
GROUP BY day;
