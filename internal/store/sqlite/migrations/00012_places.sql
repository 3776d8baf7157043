-- Executions name gates, wait in the lines of gates, and have places in them. A gate itself is an object.

-- +goose Up
ALTER TABLE executions ADD COLUMN gates TEXT;                         -- that it names
ALTER TABLE executions ADD COLUMN gate_rank INTEGER NOT NULL DEFAULT 0; -- in the line of its gate: the lower goes first
ALTER TABLE executions ADD COLUMN places INTEGER NOT NULL DEFAULT 0;    -- that it has, a bit each
ALTER TABLE executions ADD COLUMN admit_by INTEGER;                   -- when it loses those that no run has used

CREATE INDEX executions_line ON executions (gate, gate_rank, due_at, id) WHERE gate IS NOT NULL;

-- +goose StatementBegin
CREATE TABLE places (
    gate      TEXT NOT NULL,
    execution BLOB NOT NULL,
    held      INTEGER NOT NULL, -- 1 if it has one of the gate's places, 0 if it waits for one
    PRIMARY KEY (gate, execution)
) STRICT, WITHOUT ROWID;
-- +goose StatementEnd

CREATE INDEX places_execution ON places (execution);
CREATE INDEX places_held ON places (gate) WHERE held = 1;
