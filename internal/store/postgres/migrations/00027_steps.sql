-- Owners report how long a step took, in which try, and which steps have no checkpoint of their own; heartbeats report
-- the current steps of a worker's runs.

-- +goose Up
SET LOCAL lock_timeout = '500ms';

ALTER TABLE checkpoints ADD COLUMN took bigint, -- in microseconds
    ADD COLUMN attempt integer,
    ADD COLUMN steps text; -- JSON
ALTER TABLE runs ADD COLUMN steps text; -- JSON
ALTER TABLE workers ADD COLUMN current text; -- JSON

UPDATE meta SET oldest = 25;
