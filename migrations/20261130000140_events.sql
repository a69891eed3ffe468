-- What happens to a job, in order, for clients that wait for it: one that was cut off goes on after the last event it has seen.
-- Written by triggers, so that no path that changes a state can forget it.

CREATE TABLE job_events (
    job_id uuid        NOT NULL REFERENCES jobs ON DELETE CASCADE,
    -- Whoever writes one holds the lock of the job's row, so a job's events become visible in this order.
    id     bigint      GENERATED ALWAYS AS IDENTITY,
    at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    kind   text        NOT NULL CHECK (kind IN ('job', 'shape', 'progress')),
    data   json        NOT NULL,
    PRIMARY KEY (job_id, id)
);
COMMENT ON TABLE job_events IS 'One row an event of a job, as its user sees it. Rows go with their job.';
COMMENT ON COLUMN job_events.id IS 'Grows within a job; clients go on after one that they know.';
COMMENT ON COLUMN job_events.kind IS 'job: the state of the job; shape: the state of a shape; progress: a shape gets on.';

-- Writes an event and wakes who waits for it: the payload is the job, the event and its kind.
CREATE FUNCTION note_event(of_job uuid, of_kind text, of_data json) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    event bigint;
BEGIN
    INSERT INTO job_events (job_id, kind, data) VALUES (of_job, of_kind, of_data) RETURNING id INTO event;
    PERFORM pg_notify('ncu_service_events', format('%s %s %s', replace(of_job::text, '-', ''), event, of_kind));
END
$$;

CREATE FUNCTION note_job_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM note_event(NEW.id, 'job', json_build_object(
        'status', NEW.state,
        'error', left(NEW.error, 4000),
        'error_kind', NEW.error_kind,
        'attempt', NEW.attempt,
        'cancel_requested', NEW.cancel_requested));
    -- Its worker need not wait for the next renewal of its lease.
    IF TG_OP = 'UPDATE' AND NEW.cancel_requested AND NOT OLD.cancel_requested AND NEW.state = 'running' THEN
        PERFORM pg_notify('ncu_service_cancels', replace(NEW.id::text, '-', ''));
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER jobs_note_first_event AFTER INSERT ON jobs FOR EACH ROW EXECUTE FUNCTION note_job_event();
CREATE TRIGGER jobs_note_event AFTER UPDATE OF state, error, cancel_requested ON jobs
    FOR EACH ROW
    -- A failure whose sentence is still to come in the same transaction is told with it.
    WHEN ((OLD.state, OLD.error, OLD.cancel_requested) IS DISTINCT FROM (NEW.state, NEW.error, NEW.cancel_requested)
          AND NOT (NEW.state IN ('failed', 'timed_out') AND NEW.error IS NULL))
    EXECUTE FUNCTION note_job_event();

CREATE FUNCTION note_shape_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM note_event(NEW.job_id, 'shape', json_build_object(
        'benchmark_index', NEW.benchmark_index,
        'status', NEW.state,
        'error', left(NEW.error, 4000),
        'error_kind', NEW.error_kind,
        'output_tail', NEW.output_tail,
        'artifact_name', NEW.artifact_name));
    RETURN NULL;
END
$$;

CREATE TRIGGER runs_note_event AFTER UPDATE OF state ON runs
    FOR EACH ROW WHEN (OLD.state IS DISTINCT FROM NEW.state) EXECUTE FUNCTION note_shape_event();

-- What a client that was there before this table hears of a job that has not ended.
SELECT note_event(id, 'job', json_build_object('status', state, 'error', error, 'error_kind', error_kind, 'attempt', attempt,
                                               'cancel_requested', cancel_requested))
FROM jobs WHERE state IN ('queued', 'running');

-- The durations that an estimate is made from: of the shapes that ended last.
CREATE INDEX runs_measured ON runs (ended_at DESC) WHERE started_at IS NOT NULL AND ended_at IS NOT NULL;
