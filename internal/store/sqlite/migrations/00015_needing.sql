-- The executions that fail while no worker can take them are found by an index.

-- +goose Up
CREATE INDEX executions_needing ON executions (lane, ready_at, id)
WHERE ready_at IS NOT NULL AND instr(policy, '"on_no_worker":"fail"') > 0;
