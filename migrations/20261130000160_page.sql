-- The page at `/`: who is signed in there, and which GPUs a worker has.

CREATE TABLE sessions (
    key        bytea       PRIMARY KEY CHECK (octet_length(key) = 32),
    owner      bytea       NOT NULL CHECK (octet_length(owner) = 32),
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL
);
CREATE INDEX sessions_by_owner ON sessions (owner, created_at DESC);
CREATE INDEX sessions_by_end ON sessions (expires_at);
COMMENT ON TABLE sessions IS 'One row a browser that is signed in at the page.';
COMMENT ON COLUMN sessions.key IS 'Digest of the secret in the browser''s cookie, which itself is never stored.';
COMMENT ON COLUMN sessions.owner IS 'Whose jobs it shows, as in jobs.';
COMMENT ON COLUMN sessions.expires_at IS 'It counts for nothing from then on.';

ALTER TABLE workers ADD COLUMN gpus text;
COMMENT ON COLUMN workers.gpus IS 'Product names of its GPUs, as the page shows them; null where there is none or it has not said so yet.';
