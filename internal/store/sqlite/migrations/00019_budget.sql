-- A budget limits the cost of a root and its descendants, in ten-thousandths of a token. spent_by is the root whose spent
-- budget is the reason for a pause. The index has the descendants of such roots.

-- +goose Up
ALTER TABLE executions ADD COLUMN budget INTEGER NOT NULL DEFAULT 0;
ALTER TABLE executions ADD COLUMN spent_by BLOB;
CREATE INDEX executions_spent ON executions (spent_by, id) WHERE spent_by IS NOT NULL AND parent IS NOT NULL;
