-- A table that refuses a former owner, for PostgreSQL and SQLite. Each row
-- has the token of its last write; a write with a lower token changes nothing.

CREATE TABLE IF NOT EXISTS balance (
  execution TEXT PRIMARY KEY,
  token     BIGINT NOT NULL,
  amount    BIGINT NOT NULL
);

-- The write. $1 is the execution, $2 the token, $3 the amount. It returns no row
-- when the token is stale: stop working then.
INSERT INTO balance (execution, token, amount)
VALUES ($1, $2, $3)
ON CONFLICT (execution) DO UPDATE
SET token = excluded.token, amount = excluded.amount
WHERE balance.token <= excluded.token
RETURNING token;
