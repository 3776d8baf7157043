-- Executions name the requests that report their ends, as JSON. An earlier version would end an execution without them.

-- +goose Up
ALTER TABLE executions ADD COLUMN notify TEXT;
