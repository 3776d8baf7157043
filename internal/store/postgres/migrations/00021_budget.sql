-- A budget limits the cost of a root and its descendants, in ten-thousandths of a token. spent_by is the root whose spent
-- budget is the reason for a pause. Servers of older versions ignore both columns.

-- +goose Up
SET LOCAL lock_timeout = '500ms';

ALTER TABLE executions ADD COLUMN budget bigint;
ALTER TABLE executions ADD COLUMN spent_by uuid;

UPDATE meta SET oldest = 12;
