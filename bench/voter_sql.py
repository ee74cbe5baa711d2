"""The voter's SQL for those who write it by hand; SQLite and PostgreSQL run the same statements.

They differ in two words: PostgreSQL's phones are BIGINT, and its parameters are written %s.
"""

from bench.voter_show import CONTESTANTS

TABLES = {
    "contestants": "contestant INTEGER PRIMARY KEY, name TEXT NOT NULL",
    "votes": "phone INTEGER PRIMARY KEY, contestant INTEGER NOT NULL, UNIQUE (contestant, phone)",
    "counts": "contestant INTEGER PRIMARY KEY, votes INTEGER NOT NULL, UNIQUE (votes, contestant)",
    "totals": "votes INTEGER NOT NULL",
    "leaders": "kind TEXT NOT NULL, place INTEGER NOT NULL, contestant INTEGER NOT NULL, "
    "votes INTEGER NOT NULL, PRIMARY KEY (kind, place)",
    "recent": "number INTEGER PRIMARY KEY, phone INTEGER NOT NULL, contestant INTEGER NOT NULL",
    "trending": "contestant INTEGER PRIMARY KEY, votes INTEGER NOT NULL",
}
"""The window and what is counted over it are tables like the others: its tuples are numbered, so
that the one that leaves is found by its number, and the counts are kept as tuples come and go."""

SCHEMA = [f"CREATE TABLE {name} ({columns})" for name, columns in TABLES.items()]

ROWS: dict[str, list[tuple[int | str, ...]]] = {
    "contestants": [(number, f"Contestant {number}") for number in range(1, CONTESTANTS + 1)],
    "counts": [(number, 0) for number in range(1, CONTESTANTS + 1)],
    "totals": [(0,)],
}
FILL = {
    "contestants": "INSERT INTO contestants VALUES (?, ?)",
    "counts": "INSERT INTO counts VALUES (?, ?)",
    "totals": "INSERT INTO totals VALUES (?)",
}

# validate
KNOWN = "SELECT 1 FROM contestants WHERE contestant = ?"
KEEP = "INSERT INTO votes VALUES (?, ?) ON CONFLICT DO NOTHING"

# maintain
COUNT = "UPDATE counts SET votes = votes + 1 WHERE contestant = ?"
COUNT_ALL = "UPDATE totals SET votes = votes + 1"
ENTER = "INSERT INTO recent VALUES (?, ?, ?)"
ENTER_COUNT = (
    "INSERT INTO trending VALUES (?, 1) "
    "ON CONFLICT (contestant) DO UPDATE SET votes = trending.votes + 1"
)
LEAVE = "DELETE FROM recent WHERE number = ? RETURNING contestant"
LEAVE_COUNT = "UPDATE trending SET votes = votes - 1 WHERE contestant = ?"
CLEAR = "DELETE FROM leaders"
TOP = """
    INSERT INTO leaders
    SELECT 'top', row_number() OVER (ORDER BY votes DESC, contestant), contestant, votes
    FROM counts ORDER BY votes DESC, contestant LIMIT 3"""
BOTTOM = """
    INSERT INTO leaders
    SELECT 'bottom', row_number() OVER (ORDER BY votes, contestant), contestant, votes
    FROM counts ORDER BY votes, contestant LIMIT 3"""
TRENDING = """
    INSERT INTO leaders
    SELECT 'trending', row_number() OVER (ORDER BY trending.votes DESC, contestant),
        contestant, trending.votes
    FROM trending JOIN contestants USING (contestant) WHERE trending.votes > 0
    ORDER BY trending.votes DESC, contestant LIMIT 3"""
RANK = (CLEAR, TOP, BOTTOM, TRENDING)

# remove
TOTAL = "SELECT votes FROM totals"
LAST = "SELECT contestant FROM counts ORDER BY votes, contestant LIMIT 2"
REMOVE = (
    "DELETE FROM votes WHERE contestant = ?",
    "DELETE FROM counts WHERE contestant = ?",
    "DELETE FROM leaders WHERE contestant = ?",
    "DELETE FROM contestants WHERE contestant = ?",
)

STATE = {
    "contestants": "SELECT contestant FROM contestants ORDER BY contestant",
    "votes": "SELECT phone, contestant FROM votes ORDER BY phone",
    "counts": "SELECT contestant, votes FROM counts ORDER BY contestant",
    "totals": "SELECT votes FROM totals",
    "leaders": "SELECT kind, place, contestant, votes FROM leaders ORDER BY kind, place",
    "recent": "SELECT phone, contestant FROM recent ORDER BY number",
    "trending": "SELECT contestant, votes FROM trending WHERE votes > 0 ORDER BY contestant",
}
