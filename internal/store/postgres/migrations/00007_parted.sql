-- The newest parting of a parent from its open children that was carried out. Servers that do not know the column look at all such
-- parents at every sweep.

-- +goose Up
SET LOCAL lock_timeout = '500ms';

ALTER TABLE executions ADD COLUMN parted bigint;

UPDATE meta SET oldest = 1;
