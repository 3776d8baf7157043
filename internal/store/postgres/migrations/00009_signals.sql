-- An execution keeps a bounded number of signals that no checkpoint has consumed. Those that were kept before are not counted,
-- nor are those that a server of the version before takes.

-- +goose Up
SET LOCAL lock_timeout = '500ms';

ALTER TABLE executions ADD COLUMN signals integer;
ALTER TABLE executions ADD COLUMN signal_bytes bigint;

UPDATE meta SET oldest = 1;
