-- Owners report how long a step took, in which try, and which steps have no checkpoint of their own; heartbeats report
-- the current steps of a worker's runs.

-- +goose Up
ALTER TABLE checkpoints ADD COLUMN took INTEGER; -- in microseconds
ALTER TABLE checkpoints ADD COLUMN attempt INTEGER;
ALTER TABLE checkpoints ADD COLUMN steps TEXT; -- JSON
ALTER TABLE runs ADD COLUMN steps TEXT; -- JSON
ALTER TABLE workers ADD COLUMN current TEXT; -- JSON
