-- Written by "go test ./internal/store/sqlite -run TestSchemaFile -update"; do not edit.

CREATE TABLE goose_db_version (
		id INTEGER PRIMARY KEY AUTOINCREMENT,
		version_id INTEGER NOT NULL,
		is_applied INTEGER NOT NULL,
		tstamp TIMESTAMP DEFAULT (datetime('now'))
	);

CREATE TABLE meta (
    id    INTEGER PRIMARY KEY CHECK (id = 1),
    epoch INTEGER NOT NULL -- the upper half of every token; grows when a backup is restored
, floor INTEGER NOT NULL DEFAULT 0) STRICT;

INSERT INTO meta (id, epoch, floor) VALUES (1, 0, 0);

CREATE TABLE servers (
    id      BLOB NOT NULL PRIMARY KEY,
    mark_at INTEGER NOT NULL, -- its newest mark of life
    beat    INTEGER NOT NULL  -- how often it means to leave one, in microseconds
, life_at INTEGER) STRICT, WITHOUT ROWID;

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
, current TEXT) STRICT, WITHOUT ROWID;

CREATE INDEX workers_living ON workers (expires_at) WHERE ended_at IS NULL;

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
    external            INTEGER NOT NULL DEFAULT 0,
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
    parted INTEGER NOT NULL DEFAULT 0, signals INTEGER NOT NULL DEFAULT 0, signal_bytes INTEGER NOT NULL DEFAULT 0, gate TEXT, gates TEXT, gate_rank INTEGER NOT NULL DEFAULT 0, places INTEGER NOT NULL DEFAULT 0, admit_by INTEGER, repeated INTEGER NOT NULL DEFAULT 0, failed_by INTEGER NOT NULL DEFAULT 0, cost_rest INTEGER NOT NULL DEFAULT 0, budget INTEGER NOT NULL DEFAULT 0, spent_by BLOB, notify TEXT, trace TEXT) STRICT, WITHOUT ROWID;

CREATE INDEX executions_ready ON executions (lane, ready_at) WHERE ready_at IS NOT NULL;

CREATE INDEX executions_worker ON executions (worker) WHERE worker IS NOT NULL;

CREATE INDEX executions_check ON executions (check_at) WHERE check_at IS NOT NULL;

CREATE INDEX executions_parent ON executions (parent) WHERE parent IS NOT NULL;

CREATE TABLE specs (
    execution     BLOB NOT NULL,
    generation    INTEGER NOT NULL,
    hash          BLOB NOT NULL, -- of the whole submission
    priority      INTEGER NOT NULL,
    trigger       TEXT NOT NULL,
    key           TEXT, -- the idempotency key
    labels        TEXT, -- JSON
    worker_labels TEXT, -- JSON
    input         BLOB, created_by TEXT, trigger_payload BLOB,
    PRIMARY KEY (execution, generation)
) STRICT, WITHOUT ROWID;

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
    output        BLOB, op_sum BLOB, failed_by INTEGER NOT NULL DEFAULT 0, cost_rest INTEGER NOT NULL DEFAULT 0, steps TEXT,
    PRIMARY KEY (execution, token)
) STRICT, WITHOUT ROWID;

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
    data      BLOB, op_sum BLOB, cost_rest INTEGER NOT NULL DEFAULT 0, took INTEGER, attempt INTEGER, steps TEXT,
    PRIMARY KEY (execution, seq)
) STRICT;

CREATE TABLE signals (
    execution   BLOB NOT NULL,
    seq         INTEGER NOT NULL,
    name        TEXT NOT NULL,
    child       BLOB, -- whose end it is
    op          BLOB,
    at          INTEGER NOT NULL,
    consumed_by INTEGER, -- seq of the checkpoint that took it
    payload     BLOB, op_sum BLOB,
    PRIMARY KEY (execution, seq)
) STRICT;

CREATE INDEX signals_op ON signals (execution, op) WHERE op IS NOT NULL;

CREATE INDEX signals_waiting ON signals (execution, seq) WHERE consumed_by IS NULL;

CREATE TABLE actions (
    execution BLOB NOT NULL,
    seq       INTEGER NOT NULL,
    kind      TEXT NOT NULL,
    actor     TEXT,
    reason    TEXT,
    op        BLOB,
    at        INTEGER NOT NULL,
    token     INTEGER NOT NULL DEFAULT 0, -- of the run it ended
    final     INTEGER NOT NULL DEFAULT 0, op_sum BLOB,
    PRIMARY KEY (execution, seq)
) STRICT, WITHOUT ROWID;

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
    resolved_at INTEGER, failed_by INTEGER NOT NULL DEFAULT 0, notes TEXT,
    PRIMARY KEY (execution, generation)
) STRICT, WITHOUT ROWID;

CREATE TABLE idempotency (
    workflow   TEXT NOT NULL,
    key        TEXT NOT NULL,
    execution  BLOB NOT NULL,
    hash       BLOB NOT NULL, -- of the whole submission
    at         INTEGER NOT NULL,
    expires_at INTEGER, -- set when the execution is deleted
    PRIMARY KEY (workflow, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX idempotency_expires ON idempotency (expires_at) WHERE expires_at IS NOT NULL;

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

CREATE TABLE blob_sums (
    execution BLOB NOT NULL,
    name      TEXT NOT NULL,
    bytes     INTEGER NOT NULL, -- of all chunks that are there
    token     INTEGER NOT NULL, -- of the run that wrote last
    own       INTEGER NOT NULL, -- bytes of the chunks of that run
    log       INTEGER NOT NULL DEFAULT 0, -- a piece of its middle was dropped
    PRIMARY KEY (execution, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX executions_resting ON executions (state)
WHERE ready_at IS NULL AND worker IS NULL AND state < 6;

CREATE INDEX dead_letters_open ON dead_letters (reason)
WHERE resolution IS NULL;

CREATE INDEX workers_ended ON workers (ended_at) WHERE ended_at IS NOT NULL;

CREATE UNIQUE INDEX executions_parting ON executions (id)
WHERE open_children > 0 AND (state >= 6 OR cancel_by IS NOT NULL OR generation > 1)
  AND parted <> generation * 4 + (cancel_by IS NOT NULL) * 2 + (state >= 6);

CREATE TABLE objects (
    kind       TEXT NOT NULL,
    name       TEXT NOT NULL,    -- its own within its kind
    version    INTEGER NOT NULL, -- grows by one with each command that changes it
    next_at    INTEGER,          -- when the rules must look at it again
    updated_at INTEGER NOT NULL,
    updated_by TEXT,
    body       BLOB NOT NULL,    -- JSON, by the codec of its kind
    PRIMARY KEY (kind, name)
) STRICT;

CREATE INDEX objects_next ON objects (next_at) WHERE next_at IS NOT NULL;

CREATE TABLE audit (
    at      INTEGER NOT NULL,
    kind    TEXT NOT NULL, -- of what was acted on
    name    TEXT NOT NULL,
    version INTEGER NOT NULL, -- that it has since
    actor   TEXT,
    action  TEXT NOT NULL,
    reason  TEXT,
    op      BLOB,
    PRIMARY KEY (at, kind, name, version)
) STRICT, WITHOUT ROWID;

CREATE INDEX executions_line ON executions (gate, gate_rank, due_at, id) WHERE gate IS NOT NULL;

CREATE TABLE places (
    gate      TEXT NOT NULL,
    execution BLOB NOT NULL,
    held      INTEGER NOT NULL, -- 1 if it has one of the gate's places, 0 if it waits for one
    PRIMARY KEY (gate, execution)
) STRICT, WITHOUT ROWID;

CREATE INDEX places_execution ON places (execution);

CREATE INDEX places_held ON places (gate) WHERE held = 1;

CREATE INDEX executions_needing ON executions (lane, ready_at, id)
WHERE ready_at IS NOT NULL AND instr(policy, '"on_no_worker":"fail"') > 0;

CREATE INDEX dead_letters_at ON dead_letters (at, execution, generation);

CREATE INDEX dead_letters_open_at ON dead_letters (at, execution, generation) WHERE resolution IS NULL;

CREATE INDEX runs_started ON runs (started_at, execution, token);

CREATE INDEX executions_spent ON executions (spent_by, id) WHERE spent_by IS NOT NULL AND parent IS NOT NULL;
