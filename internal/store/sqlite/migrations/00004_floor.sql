-- An epoch begins at a floor below all its tokens, finer than its number: two that begin within ten minutes differ.

-- +goose Up
ALTER TABLE meta ADD COLUMN floor INTEGER NOT NULL DEFAULT 0;

UPDATE meta SET floor = epoch << 32;
