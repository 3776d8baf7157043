-- A cost has up to four decimals: cost_rest is its part below a whole token, in ten-thousandths of a token. Servers of
-- older versions add whole tokens to cost and leave cost_rest as it is.

-- +goose Up
SET LOCAL lock_timeout = '500ms';

ALTER TABLE executions ADD COLUMN cost_rest smallint;
ALTER TABLE runs ADD COLUMN cost_rest smallint;
ALTER TABLE checkpoints ADD COLUMN cost_rest smallint;

UPDATE meta SET oldest = 12;
