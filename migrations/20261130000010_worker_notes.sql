-- A worker that takes no job says so, and why.

ALTER TABLE workers
    DROP CONSTRAINT workers_state_check,
    ADD CONSTRAINT workers_state_check
        CHECK (state IN ('idle', 'busy', 'draining', 'stopped', 'unready', 'quarantined')),
    ADD COLUMN note text;
COMMENT ON COLUMN workers.note IS 'Why it takes no job, for the operator: what is missing on its host, or why its GPU is in quarantine.';
