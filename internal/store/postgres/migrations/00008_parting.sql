-- Parents whose open children may have nobody to end for are looked at until nothing is left to do, and not for as long as a child
-- lives on. The index of all of them stays for servers that know no other. This one is built beside the servers, which go on writing.

-- +goose NO TRANSACTION
-- +goose Up
UPDATE meta SET oldest = 1;

DROP INDEX CONCURRENTLY IF EXISTS executions_parting; -- half built, if this was interrupted
CREATE INDEX CONCURRENTLY executions_parting ON executions (id)
WHERE open_children > 0 AND (state >= 6 OR cancel_by IS NOT NULL OR generation > 1)
  AND parted IS DISTINCT FROM generation::bigint * 4 + CASE WHEN cancel_by IS NULL THEN 0 ELSE 2 END + CASE WHEN state >= 6 THEN 1 ELSE 0 END;
