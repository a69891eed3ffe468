-- What became of each attempt at a job. Written by a trigger, so that no path that takes a job from its holder can forget it.

CREATE TABLE attempts (
    job_id     uuid        NOT NULL REFERENCES jobs ON DELETE CASCADE,
    attempt    integer     NOT NULL CHECK (attempt > 0),
    adoption   integer     NOT NULL CHECK (adoption >= 0),
    worker     text,
    started_at timestamptz NOT NULL DEFAULT now(),
    ended_at   timestamptz,
    outcome    text        NOT NULL DEFAULT 'running'
               CHECK (outcome IN ('running', 'ended', 'released', 'handed_over', 'lost', 'fault', 'cancelled')),
    fault      text,
    PRIMARY KEY (job_id, attempt, adoption),
    CONSTRAINT attempts_end_with_an_outcome CHECK ((outcome = 'running') = (ended_at IS NULL))
);
COMMENT ON TABLE attempts IS 'One row for each time that a worker held a job: by a claim, or by an adoption of a lost worker''s attempt.';
COMMENT ON COLUMN attempts.adoption IS 'How often the attempt had been taken over by then.';
COMMENT ON COLUMN attempts.outcome IS 'ended: with the job''s end; released: its worker stopped between two shapes; handed_over: its worker stopped in mid-shape, and its container ran on; lost: its worker died or lost its lease, and another took over; fault: by a fault of the service; cancelled.';
COMMENT ON COLUMN attempts.fault IS 'The operator''s text of the fault; never shown to users.';

CREATE FUNCTION note_attempt() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    result text;
BEGIN
    IF OLD.run_token IS NOT NULL THEN
        result := CASE
            WHEN NEW.error_kind = 'cancelled' THEN 'cancelled'
            WHEN OLD.worker IS NULL THEN 'handed_over'
            WHEN NEW.state = 'running' THEN 'lost'
            WHEN NEW.faults > OLD.faults THEN 'fault'
            WHEN NEW.state = 'queued' THEN 'released'
            ELSE 'ended'
        END;
        UPDATE attempts
        SET ended_at = clock_timestamp(), outcome = result, fault = CASE WHEN result = 'fault' THEN NEW.last_fault END
        WHERE job_id = OLD.id AND attempt = OLD.attempt AND adoption = OLD.adoption;
    END IF;
    IF NEW.run_token IS NOT NULL THEN
        INSERT INTO attempts (job_id, attempt, adoption, worker) VALUES (NEW.id, NEW.attempt, NEW.adoption, NEW.worker);
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER jobs_note_attempt AFTER UPDATE OF run_token ON jobs
    FOR EACH ROW WHEN (OLD.run_token IS DISTINCT FROM NEW.run_token)
    EXECUTE FUNCTION note_attempt();
