-- An execution that only owners from outside may have says so by itself; until now that was the one gate there was. A gate is named
-- by its id from now on. The progress of a declarative workflow was never kept.

-- +goose Up
ALTER TABLE executions RENAME COLUMN gate TO external;

ALTER TABLE executions DROP COLUMN plan;
ALTER TABLE executions ADD COLUMN gate TEXT; -- that parked it
