-- Sessions that ended are found by their end, to be deleted after the retention. A lane is what is ready in it, and needs no row.

-- +goose Up
CREATE INDEX workers_ended ON workers (ended_at) WHERE ended_at IS NOT NULL;


DROP TABLE lanes;
