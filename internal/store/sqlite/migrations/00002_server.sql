-- What a server needs that a program with an engine of its own does not.

-- +goose Up
-- +goose StatementBegin
CREATE TABLE api_keys (
    id         BLOB NOT NULL PRIMARY KEY,
    name       TEXT NOT NULL,
    scopes     TEXT NOT NULL, -- JSON
    hash       BLOB NOT NULL, -- SHA-256 of the secret, which is kept nowhere
    created_at INTEGER NOT NULL,
    revoked_at INTEGER
) STRICT, WITHOUT ROWID;
-- +goose StatementEnd

-- What is kept under each name of a log or artifact, so that a limit can be held without adding up its chunks.
-- +goose StatementBegin
CREATE TABLE blob_sums (
    execution BLOB NOT NULL,
    name      TEXT NOT NULL,
    bytes     INTEGER NOT NULL, -- of all chunks that are there
    token     INTEGER NOT NULL, -- of the run that wrote last
    own       INTEGER NOT NULL, -- bytes of the chunks of that run
    log       INTEGER NOT NULL DEFAULT 0, -- a piece of its middle was dropped
    PRIMARY KEY (execution, name)
) STRICT, WITHOUT ROWID;
-- +goose StatementEnd

INSERT INTO blob_sums (execution, name, bytes, token, own)
SELECT execution, name, sum(size), max(token), 0
FROM blobs
GROUP BY execution, name;
