-- What a report says: in short for polls, whole for reports and comparisons. The whole one has a table of its own, so that no poll
-- reads past it; it lives as long as its job, though the archive may be gone.
ALTER TABLE runs ADD COLUMN summary json;
COMMENT ON COLUMN runs.summary IS 'The digest of the report in short, as the body of the job shows it.';

CREATE TABLE digests (
    job_id uuid NOT NULL,
    benchmark_index integer NOT NULL,
    schema integer NOT NULL,
    digest json NOT NULL,
    PRIMARY KEY (job_id, benchmark_index),
    FOREIGN KEY (job_id, benchmark_index) REFERENCES runs (job_id, benchmark_index) ON DELETE CASCADE
);
COMMENT ON TABLE digests IS 'What the report of a shape says; digest.json in its archive is the same.';
COMMENT ON COLUMN digests.schema IS 'Version of the layout.';
