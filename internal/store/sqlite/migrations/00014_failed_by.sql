-- An execution that failed, its run and its dead letter say which part of Belay ended them.

-- +goose Up
ALTER TABLE executions ADD COLUMN failed_by INTEGER NOT NULL DEFAULT 0; -- 0 if the owner of the run reported the failure
ALTER TABLE runs ADD COLUMN failed_by INTEGER NOT NULL DEFAULT 0;
ALTER TABLE dead_letters ADD COLUMN failed_by INTEGER NOT NULL DEFAULT 0;
