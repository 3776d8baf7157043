-- Times are microseconds since 1970, NULL for never; ids are 16 bytes; states, outcomes, classes and gates are the numbers
-- that package belay gives them. Payloads are bytes that the database never parses.
--
-- Tables with payloads have a rowid, so that they grow at one end and only a small index is touched in many places.

-- +goose Up
-- +goose StatementBegin
CREATE TABLE meta (
    id    INTEGER PRIMARY KEY CHECK (id = 1),
    epoch INTEGER NOT NULL -- the upper half of every token; grows when a backup is restored
) STRICT;
-- +goose StatementEnd

INSERT INTO meta (id, epoch) VALUES (1, 0);

-- +goose StatementBegin
CREATE TABLE servers (
    id      BLOB NOT NULL PRIMARY KEY,
    mark_at INTEGER NOT NULL, -- its newest mark of life
    beat    INTEGER NOT NULL  -- how often it means to leave one, in microseconds
) STRICT, WITHOUT ROWID;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TABLE workers (
    id           BLOB NOT NULL PRIMARY KEY,
    state        INTEGER NOT NULL,
    opened_at    INTEGER NOT NULL,
    heartbeat_at INTEGER NOT NULL,
    expires_at   INTEGER NOT NULL,
    ended_at     INTEGER,
    end_reason   TEXT,
    claim_no     INTEGER NOT NULL DEFAULT 0, -- last claim that won anything
    claim_floor  INTEGER NOT NULL DEFAULT 0, -- claims up to this number are given up
    ttl          INTEGER NOT NULL,           -- in microseconds, rounded up
    spec         TEXT NOT NULL               -- what the worker said of itself, JSON
) STRICT, WITHOUT ROWID;
-- +goose StatementEnd

CREATE INDEX workers_living ON workers (expires_at) WHERE ended_at IS NULL;

-- +goose StatementBegin
CREATE TABLE lanes (
    id       INTEGER PRIMARY KEY,
    queue    TEXT NOT NULL,
    workflow TEXT NOT NULL,
    version  TEXT NOT NULL,
    priority INTEGER NOT NULL,
    labels   TEXT -- that a worker must have, JSON
) STRICT;
-- +goose StatementEnd

-- The current truth about each execution: narrow, without payloads. The partial indexes hold only the rows that something
-- looks for; a default execution is in one of them while it is due and in another while it is owned.
-- +goose StatementBegin
CREATE TABLE executions (
    id              BLOB NOT NULL PRIMARY KEY,
    parent          BLOB,
    child           TEXT, -- the key under which the parent started it
    parent_gen      INTEGER NOT NULL DEFAULT 0, -- the generation of the parent that did
    workflow        TEXT NOT NULL,
    version         TEXT,
    queue           TEXT NOT NULL,
    lane            INTEGER NOT NULL,
    policy          TEXT, -- JSON; NULL for the defaults
    created_at      INTEGER NOT NULL,
    state           INTEGER NOT NULL,
    paused_from     INTEGER NOT NULL DEFAULT 0,
    gate            INTEGER NOT NULL DEFAULT 0,
    reason          TEXT,
    reason_text     TEXT,
    ready_at        INTEGER, -- when it may be claimed; NULL while it may not be at all
    due_at          INTEGER,
    check_at        INTEGER, -- when the rules must look at it again
    seq             INTEGER NOT NULL,
    token           INTEGER NOT NULL DEFAULT 0,
    generation      INTEGER NOT NULL DEFAULT 1,
    base_seq        INTEGER NOT NULL DEFAULT 0, -- checkpoints and signals up to it do not count
    input_gen       INTEGER NOT NULL DEFAULT 1, -- the generation whose input counts
    worker          BLOB, -- the owner while scheduled or running
    secret          BLOB,
    claim_no        INTEGER NOT NULL DEFAULT 0,
    attempts        INTEGER NOT NULL DEFAULT 0,
    losses          INTEGER NOT NULL DEFAULT 0,
    checkpoints     INTEGER NOT NULL DEFAULT 0,
    state_seq       INTEGER NOT NULL DEFAULT 0,
    signal_seq      INTEGER NOT NULL DEFAULT 0,
    signal_seen     INTEGER NOT NULL DEFAULT 0,
    open_children   INTEGER NOT NULL DEFAULT 0,
    cost            INTEGER NOT NULL DEFAULT 0,
    scheduled_at    INTEGER,
    started_at      INTEGER,
    run_at          INTEGER,
    progress_at     INTEGER,
    finished_at     INTEGER,
    cancel_by       INTEGER,
    pause_requested INTEGER NOT NULL DEFAULT 0,
    preempting      INTEGER NOT NULL DEFAULT 0,
    class           INTEGER NOT NULL DEFAULT 0,
    message         TEXT,
    plan            BLOB
) STRICT, WITHOUT ROWID;
-- +goose StatementEnd

CREATE INDEX executions_ready ON executions (lane, ready_at) WHERE ready_at IS NOT NULL;
CREATE INDEX executions_worker ON executions (worker) WHERE worker IS NOT NULL;
CREATE INDEX executions_check ON executions (check_at) WHERE check_at IS NOT NULL;
CREATE INDEX executions_parent ON executions (parent) WHERE parent IS NOT NULL;
-- Parents whose open children may have nobody to end for: they ended, are being cancelled, or were reopened.
CREATE UNIQUE INDEX executions_leaving ON executions (id)
WHERE open_children > 0 AND (state >= 6 OR cancel_by IS NOT NULL OR generation > 1);

-- +goose StatementBegin
CREATE TABLE specs (
    execution     BLOB NOT NULL,
    generation    INTEGER NOT NULL,
    hash          BLOB NOT NULL, -- of the whole submission
    priority      INTEGER NOT NULL,
    trigger       TEXT NOT NULL,
    key           TEXT, -- the idempotency key
    labels        TEXT, -- JSON
    worker_labels TEXT, -- JSON
    input         BLOB,
    PRIMARY KEY (execution, generation)
) STRICT, WITHOUT ROWID;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TABLE runs (
    execution     BLOB NOT NULL,
    token         INTEGER NOT NULL,
    worker        BLOB NOT NULL,
    attempt       INTEGER NOT NULL,
    generation    INTEGER NOT NULL,
    scheduled_seq INTEGER,
    scheduled_at  INTEGER,
    started_seq   INTEGER,
    started_at    INTEGER,
    ended_seq     INTEGER,
    ended_at      INTEGER,
    outcome       INTEGER NOT NULL DEFAULT 0,
    final         INTEGER NOT NULL DEFAULT 0, -- the execution ended with it
    op            BLOB, -- of the settlement
    cost          INTEGER NOT NULL DEFAULT 0,
    class         INTEGER NOT NULL DEFAULT 0,
    message       TEXT,
    stack         TEXT,
    input_hash    BLOB,
    config_hash   BLOB,
    output        BLOB,
    PRIMARY KEY (execution, token)
) STRICT, WITHOUT ROWID;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TABLE checkpoints (
    execution BLOB NOT NULL,
    seq       INTEGER NOT NULL,
    kind      INTEGER NOT NULL,
    key       TEXT NOT NULL,
    token     INTEGER NOT NULL,
    op        BLOB,
    at        INTEGER NOT NULL,
    cost      INTEGER NOT NULL DEFAULT 0,
    pruned    INTEGER NOT NULL DEFAULT 0, -- the data is gone; a newer one counts
    data      BLOB,
    PRIMARY KEY (execution, seq)
) STRICT;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TABLE signals (
    execution   BLOB NOT NULL,
    seq         INTEGER NOT NULL,
    name        TEXT NOT NULL,
    child       BLOB, -- whose end it is
    op          BLOB,
    at          INTEGER NOT NULL,
    consumed_by INTEGER, -- seq of the checkpoint that took it
    payload     BLOB,
    PRIMARY KEY (execution, seq)
) STRICT;
-- +goose StatementEnd

CREATE INDEX signals_op ON signals (execution, op) WHERE op IS NOT NULL;
CREATE INDEX signals_waiting ON signals (execution, seq) WHERE consumed_by IS NULL;

-- +goose StatementBegin
CREATE TABLE actions (
    execution BLOB NOT NULL,
    seq       INTEGER NOT NULL,
    kind      TEXT NOT NULL,
    actor     TEXT,
    reason    TEXT,
    op        BLOB,
    at        INTEGER NOT NULL,
    token     INTEGER NOT NULL DEFAULT 0, -- of the run it ended
    final     INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (execution, seq)
) STRICT, WITHOUT ROWID;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TABLE dead_letters (
    execution   BLOB NOT NULL,
    generation  INTEGER NOT NULL,
    seq         INTEGER NOT NULL,
    token       INTEGER NOT NULL, -- of the run that failed, 0 if none ran
    reason      TEXT NOT NULL,
    class       INTEGER NOT NULL,
    message     TEXT,
    at          INTEGER NOT NULL,
    resolution  TEXT, -- NULL while it is open
    resolved_by TEXT,
    resolved_at INTEGER,
    PRIMARY KEY (execution, generation)
) STRICT, WITHOUT ROWID;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TABLE idempotency (
    workflow   TEXT NOT NULL,
    key        TEXT NOT NULL,
    execution  BLOB NOT NULL,
    hash       BLOB NOT NULL, -- of the whole submission
    at         INTEGER NOT NULL,
    expires_at INTEGER, -- set when the execution is deleted
    PRIMARY KEY (workflow, key)
) STRICT, WITHOUT ROWID;
-- +goose StatementEnd

CREATE INDEX idempotency_expires ON idempotency (expires_at) WHERE expires_at IS NOT NULL;

-- Chunks of logs and artifacts.
-- +goose StatementBegin
CREATE TABLE blobs (
    execution BLOB NOT NULL,
    name      TEXT NOT NULL,
    n         INTEGER NOT NULL,
    token     INTEGER NOT NULL,
    hash      BLOB NOT NULL, -- SHA-256 of the data
    size      INTEGER NOT NULL,
    at        INTEGER NOT NULL,
    data      BLOB,
    PRIMARY KEY (execution, name, n)
) STRICT;
-- +goose StatementEnd
