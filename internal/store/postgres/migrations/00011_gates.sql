-- An execution that only owners from outside may have says so by itself; until now that was the one gate there was. A gate is named
-- by its id from now on. The progress of a declarative workflow was never kept. No server of a version before may go on: it would
-- take the one for the other. So what is there for such servers alone goes too: the table of lanes and the view of keys.

-- +goose Up
SET LOCAL lock_timeout = '500ms';

ALTER TABLE executions RENAME COLUMN gate TO external; -- 1, or NULL

ALTER TABLE executions
    ADD COLUMN gate text, -- that parked it
    DROP COLUMN plan;

DROP TABLE lanes;

DROP VIEW api_keys;
DROP FUNCTION write_key();
DROP FUNCTION key_body(text, text, bytea, bigint, bigint);

UPDATE meta SET oldest = 11;
