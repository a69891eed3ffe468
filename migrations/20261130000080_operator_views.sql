-- Views for people with psql and for Grafana: docs/operating.md says which question each answers. What aggregates looks at a
-- bounded time, so that a million jobs of the past cost nothing. An owner is the first twelve digits of the stored digest, as in
-- the log; nothing here shows a source or a token.

CREATE VIEW queue_overview AS
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
FROM waiting CROSS JOIN alive;

COMMENT ON VIEW queue_overview IS 'One row a job that waits. Order by queue_position.';
COMMENT ON COLUMN queue_overview.queue_position IS 'Its place, from 1, as its user sees it.';
COMMENT ON COLUMN queue_overview.job_id IS 'As in the body of the job; a comparison takes it with and without hyphens.';
COMMENT ON COLUMN queue_overview.wait_seconds IS 'Since it was submitted, earlier attempts included.';
COMMENT ON COLUMN queue_overview.waits_for IS 'What it waits for, in words.';
COMMENT ON COLUMN queue_overview.leaderboard IS 'As the user named it.';
COMMENT ON COLUMN queue_overview.owner IS 'Start of the digest of the user''s credential.';
COMMENT ON COLUMN queue_overview.priority IS 'A higher one goes first; 0 unless an operator changed it.';
COMMENT ON COLUMN queue_overview.shapes IS 'Shapes to profile in all.';
COMMENT ON COLUMN queue_overview.shapes_left IS 'Those of them that an earlier attempt has not done.';
COMMENT ON COLUMN queue_overview.attempts IS 'How often it was claimed already.';
COMMENT ON COLUMN queue_overview.faults IS 'How many of these attempts ended by a fault of the service.';
COMMENT ON COLUMN queue_overview.last_fault IS 'The last of these faults; users do not see it.';
COMMENT ON COLUMN queue_overview.submitted_at IS 'When it was queued first.';
COMMENT ON COLUMN queue_overview.not_before IS 'It is not claimed before; later than its submission only after a fault.';

CREATE VIEW running_now AS
SELECT job.id AS job_id,
       job.leaderboard,
       left(encode(job.owner, 'hex'), 12) AS owner,
       worker.host,
       holder.worker,
       CASE
           WHEN job.worker IS NULL THEN 'handed over; waits for a worker of its host'
           WHEN job.lease_until < now() THEN 'lost its worker; waits for another of its host'
           WHEN job.cancel_requested THEN 'being cancelled'
           ELSE 'held by its worker'
       END AS hold,
       round(extract(epoch FROM job.lease_until - now()), 1) AS lease_seconds_left,
       shape.benchmark_index,
       shape.benchmark,
       round(extract(epoch FROM now() - shape.started_at), 1) AS shape_seconds,
       (SELECT count(*) FROM runs WHERE runs.job_id = job.id) AS shapes,
       (SELECT count(*) FROM runs WHERE runs.job_id = job.id AND runs.ended_at IS NOT NULL) AS shapes_ended,
       job.attempt,
       job.adoption AS adoptions,
       job.losses,
       job.faults,
       round(extract(epoch FROM now() - holder.started_at), 1) AS held_seconds,
       round(extract(epoch FROM now() - job.started_at), 1) AS run_seconds,
       job.created_at AS submitted_at,
       job.started_at
FROM jobs job
-- The history knows the holder of a job that was handed over, too.
LEFT JOIN attempts holder ON holder.job_id = job.id AND holder.attempt = job.attempt AND holder.adoption = job.adoption
LEFT JOIN workers worker ON worker.name = holder.worker
LEFT JOIN LATERAL (
    SELECT * FROM runs WHERE runs.job_id = job.id AND runs.state = 'running' ORDER BY runs.benchmark_index LIMIT 1
) shape ON true
WHERE job.state = 'running';

COMMENT ON VIEW running_now IS 'One row a job that runs.';
COMMENT ON COLUMN running_now.job_id IS 'As in the body of the job; a comparison takes it with and without hyphens.';
COMMENT ON COLUMN running_now.leaderboard IS 'As the user named it.';
COMMENT ON COLUMN running_now.owner IS 'Start of the digest of the user''s credential.';
COMMENT ON COLUMN running_now.host IS 'Where it runs.';
COMMENT ON COLUMN running_now.worker IS 'Who holds it, or held it last.';
COMMENT ON COLUMN running_now.hold IS 'Whether it is held, in words.';
COMMENT ON COLUMN running_now.lease_seconds_left IS 'Until the worker counts as lost unless it renews; below 0 it does.';
COMMENT ON COLUMN running_now.benchmark_index IS 'The shape in progress, as task.yml numbers it; null between two shapes.';
COMMENT ON COLUMN running_now.benchmark IS 'The shape in progress.';
COMMENT ON COLUMN running_now.shape_seconds IS 'Since that shape was started.';
COMMENT ON COLUMN running_now.shapes IS 'Shapes to profile in all.';
COMMENT ON COLUMN running_now.shapes_ended IS 'Those of them that have ended, well or not.';
COMMENT ON COLUMN running_now.attempt IS 'Number of the attempt, from 1.';
COMMENT ON COLUMN running_now.adoptions IS 'How often this attempt was taken over from another worker.';
COMMENT ON COLUMN running_now.losses IS 'Workers that were lost one after another without a shape being ended; at 5 the job fails.';
COMMENT ON COLUMN running_now.faults IS 'How many earlier attempts ended by a fault of the service.';
COMMENT ON COLUMN running_now.held_seconds IS 'Since this worker took it.';
COMMENT ON COLUMN running_now.run_seconds IS 'Since it was first claimed, pauses between attempts included.';
COMMENT ON COLUMN running_now.submitted_at IS 'When it was queued first.';
COMMENT ON COLUMN running_now.started_at IS 'When it was first claimed.';

CREATE VIEW job_history AS
SELECT job.id AS job_id,
       job.state,
       job.error_kind,
       job.error,
       job.last_fault,
       job.leaderboard,
       job.problem_dir,
       left(encode(job.owner, 'hex'), 12) AS owner,
       job.created_at AS submitted_at,
       job.started_at,
       job.ended_at,
       round(extract(epoch FROM coalesce(job.started_at, job.ended_at) - job.created_at), 1) AS wait_seconds,
       round(extract(epoch FROM job.ended_at - job.started_at), 1) AS run_seconds,
       run.shapes,
       run.shapes_succeeded,
       job.attempt AS attempts,
       job.faults,
       (SELECT count(*) FROM attempts WHERE attempts.job_id = job.id AND attempts.adoption > 0) AS adoptions,
       job.worker,
       run.archives,
       run.archive_bytes,
       run.archives_expired,
       run.simulated
FROM jobs job
CROSS JOIN LATERAL (
    SELECT count(*) AS shapes,
           count(*) FILTER (WHERE state = 'succeeded') AS shapes_succeeded,
           count(*) FILTER (WHERE artifact_name IS NOT NULL AND artifact_expired_at IS NULL) AS archives,
           coalesce(sum(artifact_bytes) FILTER (WHERE artifact_expired_at IS NULL), 0)::bigint AS archive_bytes,
           count(*) FILTER (WHERE artifact_expired_at IS NOT NULL) AS archives_expired,
           coalesce(bool_or(simulated), false) AS simulated
    FROM runs WHERE runs.job_id = job.id
) run
WHERE job.ended_at IS NOT NULL;

COMMENT ON VIEW job_history IS 'One row a job that has ended, for as long as its row is kept. Restrict it by ended_at or job_id, which have an index.';
COMMENT ON COLUMN job_history.job_id IS 'As in the body of the job; a comparison takes it with and without hyphens.';
COMMENT ON COLUMN job_history.state IS 'succeeded, failed or timed_out.';
COMMENT ON COLUMN job_history.error_kind IS 'Whose fault and which kind; docs/queue.md has the list.';
COMMENT ON COLUMN job_history.error IS 'The sentence that its user reads.';
COMMENT ON COLUMN job_history.last_fault IS 'The last fault of the service, also of a job that then went well; users do not see it.';
COMMENT ON COLUMN job_history.leaderboard IS 'As the user named it.';
COMMENT ON COLUMN job_history.problem_dir IS 'The problem''s folder in the checkout of reference-kernels.';
COMMENT ON COLUMN job_history.owner IS 'Start of the digest of the user''s credential.';
COMMENT ON COLUMN job_history.submitted_at IS 'When it was queued.';
COMMENT ON COLUMN job_history.started_at IS 'When it was first claimed; null when it ended in the queue.';
COMMENT ON COLUMN job_history.ended_at IS 'When it ended.';
COMMENT ON COLUMN job_history.wait_seconds IS 'From its submission to its first claim, or to its end in the queue.';
COMMENT ON COLUMN job_history.run_seconds IS 'From its first claim to its end, pauses between attempts included.';
COMMENT ON COLUMN job_history.shapes IS 'Shapes to profile in all.';
COMMENT ON COLUMN job_history.shapes_succeeded IS 'Shapes with a profile.';
COMMENT ON COLUMN job_history.attempts IS 'How often it was claimed.';
COMMENT ON COLUMN job_history.faults IS 'How many of these attempts ended by a fault of the service.';
COMMENT ON COLUMN job_history.adoptions IS 'How often a worker took it over from another one.';
COMMENT ON COLUMN job_history.worker IS 'Who held it last; null when that worker had let it go.';
COMMENT ON COLUMN job_history.archives IS 'Archives that can be downloaded now.';
COMMENT ON COLUMN job_history.archive_bytes IS 'Their size in bytes.';
COMMENT ON COLUMN job_history.archives_expired IS 'Archives whose time is over.';
COMMENT ON COLUMN job_history.simulated IS 'Whether the stand-in profiler made any of it.';

CREATE VIEW worker_status AS
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
       worker.last_seen_at
FROM workers worker
-- Three heartbeats, as /health counts.
CROSS JOIN LATERAL (SELECT worker.last_seen_at > now() - interval '30 seconds' AS is_lately) heard
WHERE worker.last_seen_at > now() - interval '7 days';

COMMENT ON VIEW worker_status IS 'One row a start of a worker that was heard of within 7 days.';
COMMENT ON COLUMN worker_status.worker IS 'Its name: the host''s, and a part that is new with each start.';
COMMENT ON COLUMN worker_status.host IS 'Where it runs, or ran.';
COMMENT ON COLUMN worker_status.state IS 'idle, busy, draining, unready, quarantined or stopped, as it says itself; silent: it died, or has no database.';
COMMENT ON COLUMN worker_status.is_alive IS 'Whether it was heard of within 30 seconds and has not stopped.';
COMMENT ON COLUMN worker_status.takes_jobs IS 'Whether it takes jobs, or will when its present one ends.';
COMMENT ON COLUMN worker_status.note IS 'Why it takes no job: what its host lacks, or the GPU in quarantine, and since when and why.';
COMMENT ON COLUMN worker_status.job_id IS 'The job that it ran when it was last heard of.';
COMMENT ON COLUMN worker_status.silent_seconds IS 'Since its last heartbeat; it has one every 10 seconds.';
COMMENT ON COLUMN worker_status.up_seconds IS 'From its start to its last heartbeat.';
COMMENT ON COLUMN worker_status.version IS 'Of the program.';
COMMENT ON COLUMN worker_status.started_at IS 'When it started.';
COMMENT ON COLUMN worker_status.last_seen_at IS 'Its last heartbeat.';

CREATE VIEW user_usage AS
WITH recent AS (
    SELECT id, owner, state, error_kind, created_at, started_at, ended_at FROM jobs WHERE ended_at > now() - interval '7 days'
    UNION ALL
    -- Each state has an index of its own.
    SELECT id, owner, state, error_kind, created_at, started_at, ended_at FROM jobs WHERE state = 'queued'
    UNION ALL
    SELECT id, owner, state, error_kind, created_at, started_at, ended_at FROM jobs WHERE state = 'running'
)
SELECT left(encode(recent.owner, 'hex'), 12) AS owner,
       count(*) AS jobs,
       count(*) FILTER (WHERE recent.state = 'queued') AS jobs_queued,
       count(*) FILTER (WHERE recent.state = 'running') AS jobs_running,
       count(*) FILTER (WHERE recent.state = 'succeeded') AS jobs_succeeded,
       count(*) FILTER (WHERE recent.state IN ('failed', 'timed_out') AND recent.error_kind IS DISTINCT FROM 'service_fault')
           AS jobs_failed,
       count(*) FILTER (WHERE recent.error_kind = 'service_fault') AS jobs_failed_by_us,
       coalesce(sum(shapes.succeeded), 0)::bigint AS shapes_succeeded,
       round(coalesce(extract(epoch FROM sum(shapes.ran)), 0), 1) AS shape_seconds,
       round(extract(epoch FROM avg(coalesce(recent.started_at, recent.ended_at, now()) - recent.created_at)), 1)
           AS mean_wait_seconds,
       round(extract(epoch FROM max(coalesce(recent.started_at, recent.ended_at, now()) - recent.created_at)), 1)
           AS longest_wait_seconds,
       coalesce(sum(shapes.archive_bytes), 0)::bigint AS archive_bytes,
       max(recent.created_at) AS last_submitted_at
FROM recent CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE runs.state = 'succeeded') AS succeeded,
           sum(runs.ended_at - runs.started_at) AS ran,
           sum(runs.artifact_bytes) FILTER (WHERE runs.artifact_expired_at IS NULL) AS archive_bytes
    FROM runs WHERE runs.job_id = recent.id
) shapes
GROUP BY recent.owner;

COMMENT ON VIEW user_usage IS 'One row a user: the jobs that ended within 7 days, and those that wait or run.';
COMMENT ON COLUMN user_usage.owner IS 'Start of the digest of the user''s credential.';
COMMENT ON COLUMN user_usage.jobs IS 'All of them.';
COMMENT ON COLUMN user_usage.jobs_queued IS 'Waiting now.';
COMMENT ON COLUMN user_usage.jobs_running IS 'Running now.';
COMMENT ON COLUMN user_usage.jobs_succeeded IS 'Ended with a profile of every shape.';
COMMENT ON COLUMN user_usage.jobs_failed IS 'Failed or timed out by the submission''s own fault, or cancelled.';
COMMENT ON COLUMN user_usage.jobs_failed_by_us IS 'Failed by a fault of the service.';
COMMENT ON COLUMN user_usage.shapes_succeeded IS 'Shapes with a profile.';
COMMENT ON COLUMN user_usage.shape_seconds IS 'Time that all ended shapes took, from the start of the container to the stored archive.';
COMMENT ON COLUMN user_usage.mean_wait_seconds IS 'From a submission to the first claim, on average; of a job that waits, until now.';
COMMENT ON COLUMN user_usage.longest_wait_seconds IS 'The longest of these waits.';
COMMENT ON COLUMN user_usage.archive_bytes IS 'Size in bytes of their archives that can be downloaded now.';
COMMENT ON COLUMN user_usage.last_submitted_at IS 'When the user last submitted any of them.';

CREATE VIEW failure_reasons AS
WITH recent AS (
    SELECT id, owner, leaderboard FROM jobs WHERE ended_at > now() - interval '7 days'
    UNION ALL
    SELECT id, owner, leaderboard FROM jobs WHERE state = 'queued' AND attempt > 0
    UNION ALL
    SELECT id, owner, leaderboard FROM jobs WHERE state = 'running'
), failures AS (
    SELECT recent.id, recent.owner, recent.leaderboard, 'shape' AS what_failed,
           coalesce(runs.error_kind, 'service_fault') AS error_kind, runs.error AS text, runs.ended_at AS failed_at
    FROM recent JOIN runs ON runs.job_id = recent.id
    WHERE runs.state IN ('failed', 'timed_out')
    UNION ALL
    SELECT recent.id, recent.owner, recent.leaderboard, 'attempt', 'service_fault', attempts.fault, attempts.ended_at
    FROM recent JOIN attempts ON attempts.job_id = recent.id
    WHERE attempts.outcome = 'fault'
)
SELECT what_failed,
       error_kind,
       -- Numbers differ from failure to failure; the first line is what they share.
       regexp_replace(left(split_part(coalesce(text, ''), E'\n', 1), 160), '[0-9]+', '#', 'g') AS reason,
       count(*) AS failures,
       count(DISTINCT id) AS jobs,
       count(DISTINCT owner) AS users,
       count(DISTINCT leaderboard) AS leaderboards,
       min(failed_at) AS first_at,
       max(failed_at) AS last_at,
       (array_agg(id ORDER BY failed_at DESC, id))[1] AS last_job_id
FROM failures
WHERE failed_at > now() - interval '7 days'
GROUP BY 1, 2, 3;

COMMENT ON VIEW failure_reasons IS 'One row a reason for which shapes or attempts failed within 7 days. Order by failures.';
COMMENT ON COLUMN failure_reasons.what_failed IS 'shape: its user reads the reason. attempt: a fault of the service, after which the job was tried again or failed; only operators read it.';
COMMENT ON COLUMN failure_reasons.error_kind IS 'Whose fault and which kind; docs/queue.md has the list.';
COMMENT ON COLUMN failure_reasons.reason IS 'Start of the first line, with # for each number.';
COMMENT ON COLUMN failure_reasons.failures IS 'Shapes, or attempts, that failed by it.';
COMMENT ON COLUMN failure_reasons.jobs IS 'Jobs that it hit.';
COMMENT ON COLUMN failure_reasons.users IS 'Users that it hit.';
COMMENT ON COLUMN failure_reasons.leaderboards IS 'Leaderboards that it hit.';
COMMENT ON COLUMN failure_reasons.first_at IS 'The first time within the 7 days.';
COMMENT ON COLUMN failure_reasons.last_at IS 'The last time.';
COMMENT ON COLUMN failure_reasons.last_job_id IS 'The job that it hit last, for a look.';

CREATE VIEW gpu_utilisation AS
WITH recent AS (
    SELECT id FROM jobs WHERE ended_at > now() - interval '7 days'
    UNION ALL
    SELECT id FROM jobs WHERE state = 'queued' AND attempt > 0
    UNION ALL
    SELECT id FROM jobs WHERE state = 'running'
), lived AS (
    SELECT host, hour, count(*) AS workers
    FROM workers
    CROSS JOIN generate_series(date_trunc('hour', now() - interval '7 days'), now(), interval '1 hour') AS hour
    WHERE started_at < hour + interval '1 hour' AND last_seen_at >= hour
    GROUP BY host, hour
), held AS (
    SELECT workers.host, hour, count(*) AS attempts,
           -- The outer greatest: within a long transaction now() may be before the start.
           range_agg(tstzrange(greatest(attempts.started_at, hour),
                               greatest(attempts.started_at, hour, least(coalesce(attempts.ended_at, now()), hour + interval '1 hour'))))
               AS times
    FROM recent
    JOIN attempts ON attempts.job_id = recent.id
    JOIN workers ON workers.name = attempts.worker
    CROSS JOIN generate_series(greatest(date_trunc('hour', attempts.started_at), date_trunc('hour', now() - interval '7 days')),
                               coalesce(attempts.ended_at, now()), interval '1 hour') AS hour
    GROUP BY workers.host, hour
), busy AS (
    SELECT host, hour, attempts,
           (SELECT sum(extract(epoch FROM upper(part) - lower(part))) FROM unnest(times) AS part) AS seconds
    FROM held
)
SELECT coalesce(lived.host, busy.host) AS host,
       coalesce(lived.hour, busy.hour) AS hour,
       coalesce(lived.workers, 0) AS workers,
       coalesce(busy.attempts, 0) AS attempts,
       round(coalesce(busy.seconds, 0), 1) AS busy_seconds,
       round(coalesce(busy.seconds, 0)
             / nullif(extract(epoch FROM least(now(), coalesce(lived.hour, busy.hour) + interval '1 hour')
                                         - coalesce(lived.hour, busy.hour)), 0), 3) AS busy_share
FROM lived FULL JOIN busy ON busy.host = lived.host AND busy.hour = lived.hour;

COMMENT ON VIEW gpu_utilisation IS 'One row a host and hour of the last 7 days in which a worker of it lived or a job of it ran.';
COMMENT ON COLUMN gpu_utilisation.host IS 'The host of the GPUs.';
COMMENT ON COLUMN gpu_utilisation.hour IS 'Start of the hour.';
COMMENT ON COLUMN gpu_utilisation.workers IS 'Starts of workers that were alive at some time of it; one that is restarted counts anew.';
COMMENT ON COLUMN gpu_utilisation.attempts IS 'Times that a worker held a job in it, adoptions included.';
COMMENT ON COLUMN gpu_utilisation.busy_seconds IS 'Time in which at least one worker of the host held a job. Imports and exports count, so a GPU is busy for less than that.';
COMMENT ON COLUMN gpu_utilisation.busy_share IS 'That time as a part of the hour, from 0 to 1; of the hour in progress, as a part of what has passed.';
