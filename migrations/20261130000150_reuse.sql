-- The same job again: a result that is stored answers for it.

ALTER TABLE workers ADD COLUMN setup text;
COMMENT ON COLUMN workers.setup IS 'Digest of everything of this worker that a profile depends on: image, kind of GPU, capture options, version.';

ALTER TABLE runs
    ADD COLUMN setup           text,
    ADD COLUMN problem_version text;
COMMENT ON COLUMN runs.setup IS 'Setup of the worker that made it, as in workers; null where that is not known.';
COMMENT ON COLUMN runs.problem_version IS 'Digest of the checkout''s revision and of the evaluator''s files that it was made with.';

ALTER TABLE jobs
    ADD COLUMN cached_from uuid,
    ADD COLUMN measured_at timestamptz,
    ADD CONSTRAINT jobs_cached_whole CHECK ((cached_from IS NULL) = (measured_at IS NULL));
COMMENT ON COLUMN jobs.cached_from IS 'The job whose stored result answered for this one, which nobody ran; it may be pruned by now.';
COMMENT ON COLUMN jobs.measured_at IS 'When that job had ended.';

CREATE INDEX jobs_reusable ON jobs (source_sha256) WHERE state = 'succeeded';
-- Several jobs may refer to one archive, which is stored until the time of the last one is over.
CREATE INDEX runs_by_archive ON runs (artifact_path) WHERE artifact_path IS NOT NULL AND artifact_deleted_at IS NULL;
