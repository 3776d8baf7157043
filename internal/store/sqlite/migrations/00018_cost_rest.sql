-- A cost has up to four decimals: cost_rest is its part below a whole token, in ten-thousandths of a token.

-- +goose Up
ALTER TABLE executions ADD COLUMN cost_rest INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN cost_rest INTEGER NOT NULL DEFAULT 0;
ALTER TABLE checkpoints ADD COLUMN cost_rest INTEGER NOT NULL DEFAULT 0;
