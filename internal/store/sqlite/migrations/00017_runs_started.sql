-- The runs of all executions are listed by the time of their start.

-- +goose Up
CREATE INDEX runs_started ON runs (started_at, execution, token);
