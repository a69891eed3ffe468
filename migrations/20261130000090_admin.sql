-- What operators order, and who ordered it.

-- One row. A claim looks at it in the same statement.
CREATE TABLE queue_state (
    single             boolean PRIMARY KEY DEFAULT true CHECK (single),
    paused_at          timestamptz,
    paused_by          text,
    pause_reason       text,
    prune_requested_at timestamptz,
    CONSTRAINT queue_state_pause_whole CHECK (
        (paused_at IS NULL) = (paused_by IS NULL) AND (pause_reason IS NULL OR paused_at IS NOT NULL))
);
INSERT INTO queue_state DEFAULT VALUES;
COMMENT ON TABLE queue_state IS 'One row: whether jobs are claimed, and what all workers together are asked to do.';
COMMENT ON COLUMN queue_state.paused_at IS 'Since when no job is claimed; null while jobs are.';
COMMENT ON COLUMN queue_state.pause_reason IS 'For other operators; users do not see it.';
COMMENT ON COLUMN queue_state.prune_requested_at IS 'When somebody asked for a round of pruning; the worker that begins it takes this away.';

ALTER TABLE workers
    ADD COLUMN drain_requested_at timestamptz,
    ADD COLUMN lift_requested_at  timestamptz;
COMMENT ON COLUMN workers.drain_requested_at IS 'When somebody asked this worker to end after its shape.';
COMMENT ON COLUMN workers.lift_requested_at IS 'When somebody asked this worker to lift the quarantine of its GPUs; it takes this away when it does.';

CREATE TABLE admin_log (
    id      bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at      timestamptz NOT NULL DEFAULT now(),
    actor   text        NOT NULL,
    action  text        NOT NULL,
    target  text,
    outcome text        NOT NULL CHECK (outcome IN ('done', 'refused')),
    details text
);
CREATE INDEX admin_log_by_time ON admin_log (at);
COMMENT ON TABLE admin_log IS 'One row a use of the operators'' commands. What was changed is in the same transaction as its row.';
COMMENT ON COLUMN admin_log.actor IS 'Who, as that person said.';
COMMENT ON COLUMN admin_log.action IS 'The command, as ncu-worker admin has it.';
COMMENT ON COLUMN admin_log.target IS 'The job or the worker.';
COMMENT ON COLUMN admin_log.outcome IS 'done, or refused: then nothing was changed.';
COMMENT ON COLUMN admin_log.details IS 'What was given with the command, or why it was refused.';

-- The same as before, but a job may wait for the queue itself.
CREATE OR REPLACE VIEW queue_overview AS
WITH alive AS (
    SELECT count(*) AS workers,
           count(*) FILTER (WHERE state IN ('idle', 'busy')) AS ready,
           count(*) FILTER (WHERE state = 'idle') AS idle
    FROM workers WHERE state <> 'stopped' AND last_seen_at > now() - interval '30 seconds'
), waiting AS (
    -- The service counts in the same way: every queued job, whatever it waits for.
    SELECT *, row_number() OVER (ORDER BY priority DESC, seq) AS queue_position FROM jobs WHERE state = 'queued'
)
SELECT waiting.queue_position,
       waiting.id AS job_id,
       round(extract(epoch FROM now() - waiting.created_at), 1) AS wait_seconds,
       CASE
           WHEN waiting.cancel_requested THEN 'its end: it was cancelled'
           WHEN queue_state.paused_at IS NOT NULL THEN 'the queue to be resumed: it is paused'
           WHEN waiting.not_before > now() THEN 'the end of its pause after a fault of the service'
           WHEN alive.workers = 0 THEN 'a worker: none is alive'
           WHEN alive.ready = 0 THEN 'a worker that takes jobs: worker_status says what stops those that are alive'
           WHEN waiting.queue_position <= alive.idle THEN 'an idle worker, for a few seconds'
           ELSE 'its turn'
       END AS waits_for,
       waiting.leaderboard,
       left(encode(waiting.owner, 'hex'), 12) AS owner,
       waiting.priority,
       (SELECT count(*) FROM runs WHERE runs.job_id = waiting.id) AS shapes,
       (SELECT count(*) FROM runs WHERE runs.job_id = waiting.id AND runs.state = 'queued') AS shapes_left,
       waiting.attempt AS attempts,
       waiting.faults,
       waiting.last_fault,
       waiting.created_at AS submitted_at,
       waiting.not_before
FROM waiting CROSS JOIN alive CROSS JOIN queue_state;

-- The same as before, and what a worker is asked to do.
CREATE OR REPLACE VIEW worker_status AS
SELECT worker.name AS worker,
       worker.host,
       CASE
           WHEN worker.state = 'stopped' OR heard.is_lately THEN worker.state
           ELSE 'silent'
       END AS state,
       heard.is_lately AND worker.state <> 'stopped' AS is_alive,
       heard.is_lately AND worker.state IN ('idle', 'busy') AS takes_jobs,
       worker.note,
       worker.job_id,
       round(extract(epoch FROM now() - worker.last_seen_at), 1) AS silent_seconds,
       round(extract(epoch FROM worker.last_seen_at - worker.started_at), 1) AS up_seconds,
       worker.version,
       worker.started_at,
       worker.last_seen_at,
       worker.drain_requested_at
FROM workers worker
-- Three heartbeats, as /health counts.
CROSS JOIN LATERAL (SELECT worker.last_seen_at > now() - interval '30 seconds' AS is_lately) heard
WHERE worker.last_seen_at > now() - interval '7 days';
COMMENT ON COLUMN worker_status.drain_requested_at IS 'When an operator asked it to end after its shape.';
