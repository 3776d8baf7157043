-- Executions name the traces of their submitters, in the form of W3C Trace Context.

-- +goose Up
SET LOCAL lock_timeout = '500ms';

ALTER TABLE executions ADD COLUMN trace text;

UPDATE meta SET oldest = 25;
