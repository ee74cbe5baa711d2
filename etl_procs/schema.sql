-- The core's own tables. Everything here changes only inside the transaction of a group of batches,
-- of a call, of a push's forgetting, of a word about dead letters, or of opening the core.

-- One row. The id tells this core from any other that ever fed the same warehouse. The fence goes up
-- by one with each engine that opens the core; only the holder of the last number may go on. What
-- counts the changes of headrace_published goes up with each, so that the engine notices it.
CREATE TABLE IF NOT EXISTS headrace_core (
    id        TEXT NOT NULL,
    fence     INTEGER NOT NULL,
    holder    TEXT NOT NULL,
    published INTEGER NOT NULL
) STRICT;

-- Among how many partitions the keys of a dataflow are divided, of which this is one.
CREATE TABLE IF NOT EXISTS headrace_dataflows (
    name       TEXT PRIMARY KEY,
    partitions INTEGER NOT NULL CHECK (partitions > 0)
) STRICT, WITHOUT ROWID;

-- The column by which the tuples of each of its border streams are divided.
CREATE TABLE IF NOT EXISTS headrace_keys (
    dataflow TEXT NOT NULL,
    stream   TEXT NOT NULL,
    key      TEXT NOT NULL,
    PRIMARY KEY (dataflow, stream)
) STRICT, WITHOUT ROWID;

-- The tables, windows and aggregates that users declared, as they were made.
CREATE TABLE IF NOT EXISTS headrace_tables (
    name       TEXT PRIMARY KEY,
    kind       TEXT NOT NULL CHECK (kind IN ('table', 'window', 'aggregate')),
    definition TEXT NOT NULL
) STRICT;

-- The ledger: the last batch that each procedure has committed.
CREATE TABLE IF NOT EXISTS headrace_ledger (
    dataflow  TEXT NOT NULL,
    procedure TEXT NOT NULL,
    batch     INTEGER NOT NULL CHECK (batch >= 0),
    PRIMARY KEY (dataflow, procedure)
) STRICT, WITHOUT ROWID;

-- The streams that each procedure takes, their columns, and the unit that it is in, as of the last
-- start.
CREATE TABLE IF NOT EXISTS headrace_takes (
    dataflow  TEXT NOT NULL,
    procedure TEXT NOT NULL,
    stream    TEXT NOT NULL,
    columns   TEXT NOT NULL,
    unit      TEXT NOT NULL,
    PRIMARY KEY (dataflow, procedure, stream)
) STRICT, WITHOUT ROWID;

-- The last interval of event time, or punctuation, that a dataflow has closed, and the rule by which
-- it counts them; and what the last groups would have in the history below.
CREATE TABLE IF NOT EXISTS headrace_epochs (
    dataflow TEXT PRIMARY KEY,
    rule     TEXT NOT NULL,
    epoch    INTEGER NOT NULL,
    recent   TEXT NOT NULL DEFAULT ''
) STRICT, WITHOUT ROWID;

-- The ledger's other half: the next Kafka offset of each partition that a dataflow reads, and how
-- many tuples of that record are consumed already, if it is a frame. Nobody waits for a partition
-- that is finished; the mark that says so lies before the position, and may be deleted.
CREATE TABLE IF NOT EXISTS headrace_positions (
    dataflow    TEXT NOT NULL,
    stream      TEXT NOT NULL,
    partition   INTEGER NOT NULL,
    next_offset INTEGER NOT NULL CHECK (next_offset >= 0),
    next_index  INTEGER NOT NULL CHECK (next_index >= 0),
    finished    INTEGER NOT NULL CHECK (finished IN (0, 1)),
    PRIMARY KEY (dataflow, stream, partition)
) STRICT, WITHOUT ROWID;

-- From which number on the rows of each dataflow are below.
CREATE TABLE IF NOT EXISTS headrace_histories (
    dataflow TEXT PRIMARY KEY,
    base     INTEGER NOT NULL UNIQUE
) STRICT, WITHOUT ROWID;

-- When groups were committed, and what they took from the log. A number tells how far a dataflow was
-- with the last group of a row: the last batch that it had begun and the last that all of it had done,
-- added up. The data are JSON, without the outer brackets: for each group its number, by how much that
-- is more than before it, the time (seconds of 1970, by the clock of its machine), and for each border
-- stream five numbers for batches that are alike: how many batches after the one before, the
-- partition, how many places after its last record the first one is, how many places it has, and how
-- often that comes again. (A place is offset << 20 | index.) Under "" are batches that ran dead letters
-- again, each before the one whose letters these were. The total counts the bytes of this row and of
-- all before it, those that are forgotten as well.
CREATE TABLE IF NOT EXISTS headrace_history (
    number INTEGER PRIMARY KEY,
    data   TEXT NOT NULL,
    total  INTEGER NOT NULL
) STRICT;

-- And which numbers of its producers' sources it has consumed there, as ranges: of each its first
-- number and the one after its last, 8 bytes each in this machine's order. Before told_from, gaps
-- between them were closed, for there were too many.
CREATE TABLE IF NOT EXISTS headrace_sources (
    dataflow  TEXT NOT NULL,
    stream    TEXT NOT NULL,
    partition INTEGER NOT NULL,
    source    TEXT NOT NULL,
    bounds    BLOB NOT NULL,
    told_from INTEGER NOT NULL,
    PRIMARY KEY (dataflow, stream, partition, source)
) STRICT, WITHOUT ROWID;

-- The topics that those positions were read from: one that is deleted and made again has another id.
CREATE TABLE IF NOT EXISTS headrace_topics (
    dataflow TEXT NOT NULL,
    stream   TEXT NOT NULL,
    id       TEXT NOT NULL,
    PRIMARY KEY (dataflow, stream)
) STRICT, WITHOUT ROWID;

-- Batches of streams that some procedure has still to take, when a group ended before it did.
CREATE TABLE IF NOT EXISTS headrace_pending (
    dataflow TEXT NOT NULL,
    stream   TEXT NOT NULL,
    batch    INTEGER NOT NULL,
    data     BLOB NOT NULL,
    PRIMARY KEY (dataflow, stream, batch)
) STRICT;

-- Where event time has come in the windows that are cut by it.
CREATE TABLE IF NOT EXISTS headrace_windows (
    name     TEXT PRIMARY KEY,
    boundary INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Rows on their way to a warehouse: one Arrow IPC stream for each outlet and group of batches, in
-- the order of commits. (Two groups may each give a part of one batch, if one ended amid it.)
CREATE TABLE IF NOT EXISTS headrace_staged (
    number      INTEGER PRIMARY KEY,
    dataflow    TEXT NOT NULL,
    outlet      TEXT NOT NULL,
    first_batch INTEGER NOT NULL,
    last_batch  INTEGER NOT NULL CHECK (last_batch >= first_batch),
    row_count   INTEGER NOT NULL CHECK (row_count > 0),
    data        BLOB NOT NULL
) STRICT;

CREATE INDEX IF NOT EXISTS headrace_stages ON headrace_staged (dataflow, outlet, last_batch);

-- The warehouses that a dataflow feeds, and through which batch each has confirmed to have it.
CREATE TABLE IF NOT EXISTS headrace_confirmed (
    dataflow  TEXT NOT NULL,
    warehouse TEXT NOT NULL,
    batch     INTEGER NOT NULL CHECK (batch >= 0),
    PRIMARY KEY (dataflow, warehouse)
) STRICT, WITHOUT ROWID;

-- Since when (seconds of 1970) all of them have had what was staged through a batch.
CREATE TABLE IF NOT EXISTS headrace_kept (
    dataflow TEXT NOT NULL,
    batch    INTEGER NOT NULL,
    at       REAL NOT NULL,
    PRIMARY KEY (dataflow, batch)
) STRICT, WITHOUT ROWID;

-- Through which batch what was staged is deleted.
CREATE TABLE IF NOT EXISTS headrace_forgotten (
    dataflow TEXT PRIMARY KEY,
    batch    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The streams that are kept for readers outside, and after which batch all of each is there.
CREATE TABLE IF NOT EXISTS headrace_published (
    dataflow TEXT NOT NULL,
    stream   TEXT NOT NULL,
    after    INTEGER NOT NULL CHECK (after >= 0),
    PRIMARY KEY (dataflow, stream)
) STRICT, WITHOUT ROWID;

-- Their batches, laid down as staged rows are; and when (seconds of 1970) they were committed.
CREATE TABLE IF NOT EXISTS headrace_published_batches (
    number      INTEGER PRIMARY KEY,
    dataflow    TEXT NOT NULL,
    stream      TEXT NOT NULL,
    first_batch INTEGER NOT NULL,
    last_batch  INTEGER NOT NULL CHECK (last_batch >= first_batch),
    at          REAL NOT NULL,
    data        BLOB NOT NULL
) STRICT;

CREATE INDEX IF NOT EXISTS headrace_publications
ON headrace_published_batches (dataflow, stream, last_batch);

-- What could not be processed: single tuples (undecoded or rejected), and whole batches that failed.
CREATE TABLE IF NOT EXISTS headrace_dead_letters (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    dataflow  TEXT NOT NULL,
    -- The procedure that refused it, or those, with + between them, that failed with it or were to
    -- take it; empty: it did not decode.
    unit      TEXT NOT NULL,
    stream    TEXT NOT NULL,
    batch     INTEGER NOT NULL,
    reason    TEXT NOT NULL,
    attempts  INTEGER NOT NULL,
    at        TEXT NOT NULL,
    row_count INTEGER NOT NULL,
    -- Of a tuple that came from Kafka: where it is there, and its bytes.
    topic     TEXT,
    partition INTEGER,
    "offset"  INTEGER,
    value     BLOB,
    -- Of a tuple: its columns as a JSON array; null if it did not decode.
    fields    TEXT,
    -- Of a batch: all of its tuples, as Arrow.
    data      BLOB,
    -- Somebody asked to run it again.
    replay    INTEGER NOT NULL DEFAULT 0,
    -- Of a tuple that is not the last one of its record: how many are before it there.
    "index"   INTEGER
) STRICT;

CREATE INDEX IF NOT EXISTS headrace_replays ON headrace_dead_letters (replay) WHERE replay;

-- The batches that one unit gave up together.
CREATE INDEX IF NOT EXISTS headrace_dead_batches
ON headrace_dead_letters (dataflow, unit, batch) WHERE data IS NOT NULL;

-- How far sources are whose calls are made in order, each once: it moves in the call's commit.
CREATE TABLE IF NOT EXISTS headrace_callers (
    source TEXT PRIMARY KEY,
    number INTEGER NOT NULL,
    row    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The results of calls that were made with a key: the same call again has the same result.
CREATE TABLE IF NOT EXISTS headrace_calls (
    number    INTEGER PRIMARY KEY AUTOINCREMENT,
    dataflow  TEXT NOT NULL,
    call      TEXT NOT NULL,
    key       TEXT NOT NULL,
    arguments TEXT NOT NULL,
    result    TEXT NOT NULL,
    UNIQUE (dataflow, call, key)
) STRICT;
