-- The core's own tables. Everything here changes only inside the transaction of a batch, of a
-- push's forgetting, or of opening the core.

-- One row. The id tells this core from any other that ever fed the same warehouse.
CREATE TABLE IF NOT EXISTS headrace_core (
    id TEXT NOT NULL
) STRICT;

-- The tables that users declared, with the columns that they were made with.
CREATE TABLE IF NOT EXISTS headrace_tables (
    name    TEXT PRIMARY KEY,
    columns TEXT NOT NULL
) STRICT;

-- The ledger: the last batch that each procedure has committed.
CREATE TABLE IF NOT EXISTS headrace_ledger (
    dataflow  TEXT NOT NULL,
    procedure TEXT NOT NULL,
    batch     INTEGER NOT NULL CHECK (batch >= 0),
    PRIMARY KEY (dataflow, procedure)
) STRICT, WITHOUT ROWID;

-- The ledger's other half: the next Kafka offset of each partition that a dataflow reads.
CREATE TABLE IF NOT EXISTS headrace_positions (
    dataflow    TEXT NOT NULL,
    topic       TEXT NOT NULL,
    partition   INTEGER NOT NULL,
    next_offset INTEGER NOT NULL CHECK (next_offset > 0),
    PRIMARY KEY (dataflow, topic, partition)
) STRICT, WITHOUT ROWID;

-- The topics that those positions were read from: one that is deleted and made again has another id.
CREATE TABLE IF NOT EXISTS headrace_topics (
    dataflow TEXT NOT NULL,
    topic    TEXT NOT NULL,
    id       TEXT NOT NULL,
    PRIMARY KEY (dataflow, topic)
) STRICT, WITHOUT ROWID;

-- Rows on their way to a warehouse: one Arrow IPC stream for each outlet and batch.
CREATE TABLE IF NOT EXISTS headrace_staged (
    dataflow TEXT NOT NULL,
    batch    INTEGER NOT NULL,
    outlet   TEXT NOT NULL,
    row_count INTEGER NOT NULL CHECK (row_count > 0),
    data     BLOB NOT NULL,
    PRIMARY KEY (dataflow, batch, outlet)
) STRICT;

-- Tuples that could not be processed. A tuple has one position, so it can be here only once.
CREATE TABLE IF NOT EXISTS headrace_dead_letters (
    id        INTEGER PRIMARY KEY,
    dataflow  TEXT NOT NULL,
    stream    TEXT NOT NULL,
    batch     INTEGER NOT NULL,
    topic     TEXT NOT NULL,
    partition INTEGER NOT NULL,
    "offset"  INTEGER NOT NULL,
    reason    TEXT NOT NULL,
    value     BLOB,
    at        TEXT NOT NULL,
    UNIQUE (topic, partition, "offset", dataflow)
) STRICT;
