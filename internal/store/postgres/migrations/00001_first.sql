-- Times are microseconds since 1970; ids are uuids; states, outcomes, classes and gates are the numbers that package belay
-- gives them. Payloads are bytes that the database never parses. Zero is NULL wherever a column allows it, since NULL takes
-- no room: what an execution does not use costs it nothing.

-- +goose Up
CREATE TABLE meta (
    id       integer PRIMARY KEY CHECK (id = 1),
    epoch    bigint NOT NULL, -- the upper half of every token; grows when a backup is restored
    system   text,            -- the database system and timeline that the epoch was given out on
    timeline text
);

INSERT INTO meta (id, epoch) VALUES (1, 0);

-- Marks of life, one for each connection that writes: two of them would wait for each other's commit at one row. A row
-- lasts for a few seconds and then another one begins, so that no row ever has many versions, however long a snapshot of
-- old is held.
CREATE TABLE servers (
    period  bigint NOT NULL, -- ten seconds, counted from 1970
    id      uuid NOT NULL,
    slot    smallint NOT NULL,
    mark_at bigint NOT NULL,
    beat    bigint NOT NULL, -- how often the server means to leave a mark, in microseconds
    PRIMARY KEY (period, id, slot)
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

CREATE TABLE workers (
    id           uuid PRIMARY KEY,
    opened_at    bigint NOT NULL,
    heartbeat_at bigint NOT NULL,
    expires_at   bigint NOT NULL,
    claim_no     bigint NOT NULL, -- last claim that won anything
    claim_floor  bigint NOT NULL, -- claims up to this number are given up
    ttl          bigint NOT NULL, -- in microseconds, rounded up
    state        smallint NOT NULL,
    ended_at     bigint,
    end_reason   text,
    spec         text NOT NULL -- what the worker said of itself, JSON
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX workers_living ON workers (expires_at, id) WHERE ended_at IS NULL;

CREATE TABLE lanes (
    id       bigint PRIMARY KEY,
    priority integer NOT NULL,
    queue    text NOT NULL,
    workflow text NOT NULL,
    version  text NOT NULL,
    labels   text -- that a worker must have, JSON
);

-- The current truth about each execution: narrow, without payloads, what every row has first. A default execution is
-- written three times, so there is room for its versions beside it. The partial indexes hold only the rows that something
-- looks for; a default execution is in one of them while it is due and in another while it is owned.
CREATE TABLE executions (
    id              uuid PRIMARY KEY,
    lane            bigint NOT NULL,
    created_at      bigint NOT NULL,
    seq             bigint NOT NULL,
    generation      integer NOT NULL,
    input_gen       integer NOT NULL, -- the generation whose input counts
    state           smallint NOT NULL,
    queue           text NOT NULL,
    workflow        text NOT NULL,
    version         text,
    policy          text, -- JSON; NULL for the defaults
    parent          uuid,
    child           text,    -- the key under which the parent started it
    parent_gen      integer, -- the generation of the parent that did
    paused_from     smallint,
    gate            smallint,
    reason          text,
    reason_text     text,
    ready_at        bigint, -- when it may be claimed; NULL while it may not be at all
    due_at          bigint,
    check_at        bigint, -- when the rules must look at it again
    token           bigint,
    base_seq        bigint, -- checkpoints and signals up to it do not count
    worker          uuid,   -- the owner while scheduled or running
    secret          uuid,
    claim_no        bigint,
    run_seq         bigint, -- at which the run began that it is in; that run gets its row when it ends
    attempts        integer,
    losses          integer,
    checkpoints     integer,
    state_seq       bigint,
    signal_seq      bigint,
    signal_seen     bigint,
    open_children   integer,
    cost            bigint,
    scheduled_at    bigint,
    started_at      bigint,
    run_at          bigint,
    progress_at     bigint,
    finished_at     bigint,
    cancel_by       bigint,
    pause_requested boolean,
    preempting      boolean,
    class           smallint,
    message         text,
    plan            bytea
) WITH (
    fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 10000,
    autovacuum_analyze_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0
);

CREATE INDEX executions_ready ON executions (lane, ready_at, id) WHERE ready_at IS NOT NULL;
CREATE INDEX executions_worker ON executions (worker, id) WHERE worker IS NOT NULL;
CREATE INDEX executions_check ON executions (check_at, id) WHERE check_at IS NOT NULL;
CREATE INDEX executions_parent ON executions (parent, id) WHERE parent IS NOT NULL;
-- Parents whose open children may have nobody to end for: they ended, are being cancelled, or were reopened.
CREATE INDEX executions_leaving ON executions (id)
WHERE open_children > 0 AND (state >= 6 OR cancel_by IS NOT NULL OR generation > 1);

CREATE TABLE specs (
    execution     uuid NOT NULL,
    generation    integer NOT NULL,
    priority      integer NOT NULL,
    hash          bytea NOT NULL, -- of the whole submission
    trigger       text NOT NULL,
    key           text, -- the idempotency key
    labels        text, -- JSON
    worker_labels text, -- JSON
    input         bytea,
    PRIMARY KEY (execution, generation)
);

-- A run that was accepted and not assigned before has its row from its end on; until then it stands in its execution.
CREATE TABLE runs (
    execution     uuid NOT NULL,
    token         bigint NOT NULL,
    worker        uuid NOT NULL,
    attempt       integer NOT NULL,
    generation    integer NOT NULL,
    scheduled_seq bigint,
    scheduled_at  bigint,
    started_seq   bigint,
    started_at    bigint,
    ended_seq     bigint,
    ended_at      bigint,
    outcome       smallint,
    final         boolean, -- the execution ended with it
    op            uuid,    -- of the settlement
    cost          bigint,
    class         smallint,
    message       text,
    stack         text,
    input_hash    bytea,
    config_hash   bytea,
    output        bytea,
    PRIMARY KEY (execution, token)
);

CREATE TABLE checkpoints (
    execution uuid NOT NULL,
    seq       bigint NOT NULL,
    token     bigint NOT NULL,
    at        bigint NOT NULL,
    kind      smallint NOT NULL,
    key       text NOT NULL,
    op        uuid,
    cost      bigint,
    pruned    boolean, -- the data is gone; a newer one counts
    data      bytea,
    PRIMARY KEY (execution, seq)
);

CREATE TABLE signals (
    execution   uuid NOT NULL,
    seq         bigint NOT NULL,
    at          bigint NOT NULL,
    name        text NOT NULL,
    child       uuid, -- whose end it is
    op          uuid,
    consumed_by bigint, -- seq of the checkpoint that took it
    payload     bytea,
    PRIMARY KEY (execution, seq)
);

CREATE INDEX signals_op ON signals (execution, op) WHERE op IS NOT NULL;
CREATE INDEX signals_waiting ON signals (execution, seq) WHERE consumed_by IS NULL;

CREATE TABLE actions (
    execution uuid NOT NULL,
    seq       bigint NOT NULL,
    at        bigint NOT NULL,
    kind      text NOT NULL,
    actor     text,
    reason    text,
    op        uuid,
    token     bigint, -- of the run it ended
    final     boolean,
    PRIMARY KEY (execution, seq)
);

CREATE TABLE dead_letters (
    execution   uuid NOT NULL,
    generation  integer NOT NULL,
    class       smallint NOT NULL,
    seq         bigint NOT NULL,
    at          bigint NOT NULL,
    token       bigint, -- of the run that failed, NULL if none ran
    reason      text NOT NULL,
    message     text,
    resolution  text, -- NULL while it is open
    resolved_by text,
    resolved_at bigint,
    PRIMARY KEY (execution, generation)
);

CREATE TABLE idempotency (
    workflow   text NOT NULL,
    key        text NOT NULL,
    execution  uuid NOT NULL,
    at         bigint NOT NULL,
    hash       bytea NOT NULL, -- of the whole submission
    expires_at bigint, -- set when the execution is deleted
    PRIMARY KEY (workflow, key)
);

CREATE INDEX idempotency_expires ON idempotency (expires_at) WHERE expires_at IS NOT NULL;

-- Chunks of logs and artifacts.
CREATE TABLE blobs (
    execution uuid NOT NULL,
    name      text NOT NULL,
    n         bigint NOT NULL,
    token     bigint NOT NULL,
    size      bigint NOT NULL,
    at        bigint NOT NULL,
    hash      bytea NOT NULL, -- SHA-256 of the data
    data      bytea,
    PRIMARY KEY (execution, name, n)
);

-- What is kept under each name of a log or artifact, so that a limit can be held without adding up its chunks.
CREATE TABLE blob_sums (
    execution uuid NOT NULL,
    name      text NOT NULL,
    bytes     bigint NOT NULL, -- of all chunks that are there
    token     bigint NOT NULL, -- of the run that wrote last
    own       bigint NOT NULL, -- bytes of the chunks of that run
    log       boolean,         -- a piece of its middle was dropped
    PRIMARY KEY (execution, name)
) WITH (fillfactor = 70);

CREATE TABLE api_keys (
    id         uuid PRIMARY KEY,
    created_at bigint NOT NULL,
    name       text NOT NULL,
    scopes     text NOT NULL, -- JSON
    hash       bytea NOT NULL, -- SHA-256 of the secret, which is kept nowhere
    revoked_at bigint
);
