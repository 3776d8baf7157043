-- Parents whose open children may have nobody to end for are looked at until nothing is left to do, and not at every sweep for as
-- long as a child lives on.

-- +goose Up
ALTER TABLE executions ADD COLUMN parted INTEGER NOT NULL DEFAULT 0; -- the newest parting from its children that was carried out

DROP INDEX executions_leaving;

CREATE UNIQUE INDEX executions_parting ON executions (id)
WHERE open_children > 0 AND (state >= 6 OR cancel_by IS NOT NULL OR generation > 1)
  AND parted <> generation * 4 + (cancel_by IS NOT NULL) * 2 + (state >= 6);
