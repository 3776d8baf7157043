-- An epoch begins at a floor below all its tokens, finer than its number: two that begin within ten minutes differ. A lineage
-- names the copy of the database in which it began: two standbys of one primary that were promoted have one timeline, and
-- what was committed in one of them is unknown to the other. Servers that do not know these columns write the number alone.

-- +goose Up
SET LOCAL lock_timeout = '500ms';

ALTER TABLE meta ADD COLUMN floor bigint NOT NULL DEFAULT 0, ADD COLUMN lineage uuid;

UPDATE meta SET floor = epoch << 32;

UPDATE meta SET oldest = 1;
