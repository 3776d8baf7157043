-- A submission names its actor, and may have the data that the source of its trigger has sent.

-- +goose Up
ALTER TABLE specs ADD COLUMN created_by TEXT;
ALTER TABLE specs ADD COLUMN trigger_payload BLOB;
