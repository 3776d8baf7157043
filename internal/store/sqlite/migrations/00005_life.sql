-- A commit's mark is the time of its decision, which no clock shows less than; a mark of life also says that sessions could be
-- written then.

-- +goose Up
ALTER TABLE servers ADD COLUMN life_at INTEGER; -- its newest mark of life

UPDATE servers SET life_at = mark_at;
