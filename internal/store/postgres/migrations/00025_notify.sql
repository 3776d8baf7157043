-- Executions name the requests that report their ends, as JSON. No server of an earlier version may go on: it would end
-- executions without the requests.

-- +goose Up
SET LOCAL lock_timeout = '500ms';

ALTER TABLE executions ADD COLUMN notify text;

UPDATE meta SET oldest = 25;
