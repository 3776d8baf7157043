-- Things that change rarely share one table, whatever their kind, and what is done to them leaves a trace. The keys of a server
-- are the first of them.

-- +goose Up
-- +goose StatementBegin
CREATE TABLE objects (
    kind       TEXT NOT NULL,
    name       TEXT NOT NULL,    -- its own within its kind
    version    INTEGER NOT NULL, -- grows by one with each command that changes it
    next_at    INTEGER,          -- when the rules must look at it again
    updated_at INTEGER NOT NULL,
    updated_by TEXT,
    body       BLOB NOT NULL,    -- JSON, by the codec of its kind
    PRIMARY KEY (kind, name)
) STRICT;
-- +goose StatementEnd

CREATE INDEX objects_next ON objects (next_at) WHERE next_at IS NOT NULL;

-- +goose StatementBegin
CREATE TABLE audit (
    at      INTEGER NOT NULL,
    kind    TEXT NOT NULL, -- of what was acted on
    name    TEXT NOT NULL,
    version INTEGER NOT NULL, -- that it has since
    actor   TEXT,
    action  TEXT NOT NULL,
    reason  TEXT,
    op      BLOB,
    PRIMARY KEY (at, kind, name, version)
) STRICT, WITHOUT ROWID;
-- +goose StatementEnd

INSERT INTO objects (kind, name, version, updated_at, body)
SELECT 'key', lower(hex(id)), 1, coalesce(revoked_at, created_at), CAST(json_object(
    'name', name, 'scopes', json(scopes), 'hash', lower(hex(hash)), 'created_at', created_at, 'revoked_at', revoked_at
) AS BLOB)
FROM api_keys;

DROP TABLE api_keys;
