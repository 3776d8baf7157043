-- An execution keeps a bounded number of signals that no checkpoint has consumed. Those that were kept before are not counted.

-- +goose Up
ALTER TABLE executions ADD COLUMN signals INTEGER NOT NULL DEFAULT 0;
ALTER TABLE executions ADD COLUMN signal_bytes INTEGER NOT NULL DEFAULT 0;
