-- What the statements say again and again; PostgreSQL puts all of these in line.

CREATE FUNCTION steps.blank(field TEXT) RETURNS TEXT LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN NULLIF(btrim(field), '');

-- date_part, not extract, whose NUMERIC costs three times as much.
CREATE FUNCTION steps.date_id(moment TIMESTAMP) RETURNS BIGINT LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CAST(date_part('year', moment) * 10000 + date_part('month', moment) * 100
    + date_part('day', moment) AS BIGINT);

CREATE FUNCTION steps.time_id(moment TIMESTAMP) RETURNS BIGINT LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CAST(date_part('hour', moment) * 10000 + date_part('minute', moment) * 100
    + date_part('second', moment) AS BIGINT);

CREATE FUNCTION steps.phone(ctry TEXT, area TEXT, local TEXT, ext TEXT) RETURNS TEXT
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
    WHEN steps.blank(local) IS NULL THEN ''
    WHEN steps.blank(area) IS NULL THEN local || coalesce(ext, '')
    WHEN steps.blank(ctry) IS NULL THEN '(' || area || ') ' || local || coalesce(ext, '')
    ELSE '+' || ctry || ' (' || area || ') ' || local || coalesce(ext, '')
END;

-- Who somebody is; with NULL in it, but for the second line of the address, nobody.
CREATE FUNCTION steps.person(
    lastname TEXT, firstname TEXT, addressline1 TEXT, addressline2 TEXT, postalcode TEXT
) RETURNS TEXT LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN upper(lastname || chr(31) || firstname || chr(31) || addressline1 || chr(31)
    || coalesce(addressline2, '') || chr(31) || postalcode);

-- All that was said so far, the last word on each field: PostgreSQL 18 has no IGNORE NULLS.
CREATE AGGREGATE steps.said(jsonb) (SFUNC = jsonb_concat, STYPE = jsonb, INITCOND = '{}');
