-- A schema says which servers may work on it. Every migration from here on sets meta.oldest, so that a server which does not
-- know the schema yet can tell whether it may go on: while servers are replaced one at a time, one of the old ones may be
-- started again.

-- +goose Up
-- Every commit reads meta. A dump holds it for as long as it takes, and commits must not queue behind this meanwhile.
SET LOCAL lock_timeout = '500ms';

ALTER TABLE meta ADD COLUMN oldest bigint NOT NULL DEFAULT 1; -- servers that know this schema, or a newer one, may work on it
