-- A submission names its actor, and may have the data that the source of its trigger has sent. Servers of older versions leave
-- both columns empty.

-- +goose Up
SET LOCAL lock_timeout = '500ms';

ALTER TABLE specs ADD COLUMN created_by text;
ALTER TABLE specs ADD COLUMN trigger_payload bytea;

UPDATE meta SET oldest = 23;
