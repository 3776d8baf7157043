-- Dead letters keep notes.

-- +goose Up
SET LOCAL lock_timeout = '500ms';

ALTER TABLE dead_letters ADD COLUMN notes text; -- JSON

UPDATE meta SET oldest = 12;
