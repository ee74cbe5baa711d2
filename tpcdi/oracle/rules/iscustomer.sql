-- Prospect: a prospect is a customer if a current one, who is active, is that person.

INSERT INTO oracle.prospect BY NAME
SELECT prospect.* EXCLUDE (after, batch, last_change, person), last_change AS batchid,
    date_id(recorded.day) AS sk_recorddateid, date_id(updated.day) AS sk_updatedateid,
    person IN (
        SELECT person(lastname, firstname, addressline1, addressline2, postalcode) AS of_customer
        FROM oracle.dimcustomer
        WHERE iscurrent AND status = 'Active' AND of_customer IS NOT NULL
    ) IS TRUE AS iscustomer
FROM steps.prospect_at AS prospect
JOIN steps.batch AS recorded ON recorded.batch = prospect.batch
JOIN steps.batch AS updated ON updated.batch = last_change
WHERE after = (SELECT max(batch) FROM steps.batch);
