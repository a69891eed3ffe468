-- An attempt outlives its worker: the next worker of its host takes it over, with what its containers have done.

ALTER TABLE jobs
    ADD COLUMN claim_token uuid,
    ADD COLUMN adoption    integer NOT NULL DEFAULT 0 CHECK (adoption >= 0),
    ADD COLUMN losses      integer NOT NULL DEFAULT 0 CHECK (losses >= 0);
UPDATE jobs SET claim_token = run_token WHERE state = 'running';
ALTER TABLE jobs
    ADD CONSTRAINT jobs_claimed_while_running CHECK (state <> 'running' OR claim_token IS NOT NULL);
COMMENT ON COLUMN jobs.claim_token IS 'Token of the claim: containers and folders of the attempt carry it, whoever holds the attempt.';
COMMENT ON COLUMN jobs.run_token IS 'Token of the attempt''s holder, new with each adoption; every write of a result must carry it.';
COMMENT ON COLUMN jobs.lease_until IS 'Until when the attempt is its holder''s alone; then it can be adopted, and after a while it is queued again.';
COMMENT ON COLUMN jobs.worker IS 'Who holds the attempt; none when it was handed over.';
COMMENT ON COLUMN jobs.adoption IS 'How often the attempt was taken over from another worker; names its containers, folders and objects.';
COMMENT ON COLUMN jobs.losses IS 'Workers that were lost one after another without a shape being ended; too many fail the job.';

ALTER TABLE runs
    ADD COLUMN adoption integer CHECK (adoption >= 0);
COMMENT ON COLUMN runs.adoption IS 'The attempt''s adoption when its capture was started: which container holds its result.';
