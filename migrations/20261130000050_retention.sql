-- Archives do not stay for ever.

ALTER TABLE runs
    ADD COLUMN artifact_expired_at timestamptz,
    ADD COLUMN artifact_deleted_at timestamptz,
    ADD CONSTRAINT runs_artifact_expires_before_it_is_deleted CHECK (
        artifact_deleted_at IS NULL OR artifact_expired_at IS NOT NULL);
COMMENT ON COLUMN runs.artifact_expired_at IS 'Since when the archive is not handed out any more.';
COMMENT ON COLUMN runs.artifact_deleted_at IS 'When the archive was removed from the artifact store.';

-- What retention looks for.
CREATE INDEX runs_artifacts_held ON runs (ended_at) WHERE artifact_name IS NOT NULL AND artifact_expired_at IS NULL;
CREATE INDEX runs_artifacts_to_delete ON runs (artifact_expired_at)
    WHERE artifact_expired_at IS NOT NULL AND artifact_deleted_at IS NULL;
CREATE INDEX jobs_by_end ON jobs (ended_at) WHERE ended_at IS NOT NULL;
