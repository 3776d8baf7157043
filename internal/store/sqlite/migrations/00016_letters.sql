-- Dead letters keep notes, and are listed by time.

-- +goose Up
ALTER TABLE dead_letters ADD COLUMN notes TEXT; -- JSON

CREATE INDEX dead_letters_at ON dead_letters (at, execution, generation);
CREATE INDEX dead_letters_open_at ON dead_letters (at, execution, generation) WHERE resolution IS NULL;
