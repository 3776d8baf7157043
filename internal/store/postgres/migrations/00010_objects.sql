-- Things that change rarely share one table, whatever their kind, and what is done to them leaves a trace. The keys of a server
-- are the first of them. Servers of the version before go on with api_keys, which is a view of the same keys from now on; what
-- they do to a key leaves no trace.

-- +goose Up
SET LOCAL lock_timeout = '500ms';

-- Names are in the order of their bytes, whatever the language of the database.
CREATE TABLE objects (
    kind       text COLLATE "C" NOT NULL,
    name       text COLLATE "C" NOT NULL, -- its own within its kind
    version    bigint NOT NULL,           -- grows by one with each command that changes it
    next_at    bigint,                    -- when the rules must look at it again
    updated_at bigint NOT NULL,
    updated_by text,
    body       bytea NOT NULL,            -- JSON, by the codec of its kind
    PRIMARY KEY (kind, name)
);

CREATE INDEX objects_next ON objects (next_at) WHERE next_at IS NOT NULL;

CREATE TABLE audit (
    at      bigint NOT NULL,
    kind    text COLLATE "C" NOT NULL, -- of what was acted on
    name    text COLLATE "C" NOT NULL,
    version bigint NOT NULL,           -- that it has since
    actor   text,
    action  text NOT NULL,
    reason  text,
    op      uuid,
    PRIMARY KEY (at, kind, name, version)
);

-- +goose StatementBegin
CREATE FUNCTION key_body(name text, scopes text, hash bytea, created_at bigint, revoked_at bigint) RETURNS bytea
LANGUAGE sql IMMUTABLE AS $$
    SELECT convert_to(json_build_object(
        'name', name, 'scopes', scopes::json, 'hash', encode(hash, 'hex'), 'created_at', created_at, 'revoked_at', revoked_at
    )::text, 'UTF8')
$$;
-- +goose StatementEnd

LOCK TABLE api_keys;

INSERT INTO objects (kind, name, version, updated_at, body)
SELECT 'key', replace(id::text, '-', ''), 1, coalesce(revoked_at, created_at), key_body(name, scopes, hash, created_at, revoked_at)
FROM api_keys;

DROP TABLE api_keys;

CREATE VIEW api_keys AS
SELECT o.name::uuid AS id, (o.key ->> 'created_at')::bigint AS created_at, o.key ->> 'name' AS name, o.key ->> 'scopes' AS scopes,
       decode(o.key ->> 'hash', 'hex') AS hash, (o.key ->> 'revoked_at')::bigint AS revoked_at
FROM (SELECT name, convert_from(body, 'UTF8')::json AS key FROM objects WHERE kind = 'key') o;

-- +goose StatementBegin
CREATE FUNCTION write_key() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO objects (kind, name, version, updated_at, body)
        VALUES ('key', replace(NEW.id::text, '-', ''), 1, NEW.created_at,
                key_body(NEW.name, NEW.scopes, NEW.hash, NEW.created_at, NEW.revoked_at));
    ELSE
        UPDATE objects
        SET version = version + 1, updated_at = coalesce(NEW.revoked_at, updated_at), updated_by = NULL,
            body = key_body(NEW.name, NEW.scopes, NEW.hash, NEW.created_at, NEW.revoked_at)
        WHERE kind = 'key' AND objects.name = replace(NEW.id::text, '-', '');
    END IF;
    RETURN NEW;
END
$$;
-- +goose StatementEnd

CREATE TRIGGER write_key INSTEAD OF INSERT OR UPDATE ON api_keys
FOR EACH ROW EXECUTE FUNCTION write_key();

UPDATE meta SET oldest = 1;
