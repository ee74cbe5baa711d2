-- The voter's three procedures as PostgreSQL's own: each is one call, and one transaction.

CREATE FUNCTION validate(a_phone BIGINT, a_contestant INTEGER) RETURNS BOOLEAN LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM contestants WHERE contestant = a_contestant;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO votes VALUES (a_phone, a_contestant) ON CONFLICT DO NOTHING;
    RETURN FOUND;
END $$;

CREATE FUNCTION maintain(a_number INTEGER, a_phone BIGINT, a_contestant INTEGER) RETURNS VOID
LANGUAGE plpgsql AS $$
DECLARE
    gone INTEGER;
BEGIN
    UPDATE counts SET votes = votes + 1 WHERE contestant = a_contestant;
    UPDATE totals SET votes = votes + 1;
    INSERT INTO recent VALUES (a_number, a_phone, a_contestant);
    INSERT INTO trending VALUES (a_contestant, 1)
        ON CONFLICT (contestant) DO UPDATE SET votes = trending.votes + 1;
    DELETE FROM recent WHERE number = a_number - 100 RETURNING contestant INTO gone;
    IF FOUND THEN
        UPDATE trending SET votes = votes - 1 WHERE contestant = gone;
    END IF;
    DELETE FROM leaders;
    INSERT INTO leaders
        SELECT 'top', row_number() OVER (ORDER BY votes DESC, contestant), contestant, votes
        FROM counts ORDER BY votes DESC, contestant LIMIT 3;
    INSERT INTO leaders
        SELECT 'bottom', row_number() OVER (ORDER BY votes, contestant), contestant, votes
        FROM counts ORDER BY votes, contestant LIMIT 3;
    INSERT INTO leaders
        SELECT 'trending', row_number() OVER (ORDER BY trending.votes DESC, contestant),
            contestant, trending.votes
        FROM trending JOIN contestants USING (contestant) WHERE trending.votes > 0
        ORDER BY trending.votes DESC, contestant LIMIT 3;
END $$;

CREATE FUNCTION remove() RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE
    last INTEGER[];
BEGIN
    IF (SELECT votes % 1000 FROM totals) <> 0 THEN
        RETURN;
    END IF;
    last := ARRAY(SELECT contestant FROM counts ORDER BY votes, contestant LIMIT 2);
    IF cardinality(last) > 1 THEN
        DELETE FROM votes WHERE contestant = last[1];
        DELETE FROM counts WHERE contestant = last[1];
        DELETE FROM leaders WHERE contestant = last[1];
        DELETE FROM contestants WHERE contestant = last[1];
    END IF;
END $$;
