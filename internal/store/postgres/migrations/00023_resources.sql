-- Executions may require a resource in a mode, and gates of the kind resource let them through. Both stand in columns
-- that exist. No server of an earlier version may go on: it would claim past these gates.

-- +goose Up
UPDATE meta SET oldest = 23;
