-- Executions name gates, wait in the lines of gates, and have places in them. A gate itself is an object. No server of
-- an earlier version may go on: it would claim past the gates.

-- +goose Up
SET LOCAL lock_timeout = '500ms';

ALTER TABLE executions
    ADD COLUMN gates text,         -- that it names
    ADD COLUMN gate_rank integer,  -- in the line of its gate: the lower goes first; NULL for 0
    ADD COLUMN places smallint,    -- that it has, a bit each; NULL for none
    ADD COLUMN admit_by bigint;    -- when it loses those that no run has used

CREATE TABLE places (
    gate      text COLLATE "C" NOT NULL,
    execution uuid NOT NULL,
    held      boolean NOT NULL, -- it has one of the gate's places; else it waits for one
    PRIMARY KEY (gate, execution)
);

CREATE INDEX places_execution ON places (execution);
CREATE INDEX places_held ON places (gate) WHERE held;

UPDATE meta SET oldest = 12;
