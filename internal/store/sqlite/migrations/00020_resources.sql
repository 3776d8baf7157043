-- Executions may require a resource in a mode, and gates of the kind resource let them through. Both stand in columns
-- that exist. No earlier version may use the database any more: it would claim past these gates.

-- +goose Up
SELECT 1;
