-- Executions name the traces of their submitters, in the form of W3C Trace Context.

-- +goose Up
ALTER TABLE executions ADD COLUMN trace TEXT;
