-- A table that refuses a stale owner, for PostgreSQL and SQLite alike. Each row
-- remembers the token it was last written under; a lower one changes nothing.

CREATE TABLE IF NOT EXISTS balance (
  execution TEXT PRIMARY KEY,
  token     BIGINT NOT NULL,
  amount    BIGINT NOT NULL
);

-- The write. $1 is the execution, $2 the token, $3 the amount. No row comes back
-- when the token is stale: stop then.
INSERT INTO balance (execution, token, amount)
VALUES ($1, $2, $3)
ON CONFLICT (execution) DO UPDATE
SET token = excluded.token, amount = excluded.amount
WHERE balance.token <= excluded.token
RETURNING token;
