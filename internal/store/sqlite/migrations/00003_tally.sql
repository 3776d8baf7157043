-- What there is to do is counted without reading through what was done. A default execution never enters these indexes.

-- +goose Up
-- Neither due nor owned nor ended: what waits for a signal or a child, is paused, or stands behind a gate.
CREATE INDEX executions_resting ON executions (state)
WHERE ready_at IS NULL AND worker IS NULL AND state < 6;

CREATE INDEX dead_letters_open ON dead_letters (reason)
WHERE resolution IS NULL;
