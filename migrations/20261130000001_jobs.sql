-- The queue. This table is the truth about every job; apalis holds only wake-ups (tickets) that can be lost or doubled.

CREATE TABLE jobs (
    id               uuid        PRIMARY KEY,
    seq              bigint      GENERATED ALWAYS AS IDENTITY,
    priority         integer     NOT NULL DEFAULT 0,
    state            text        NOT NULL DEFAULT 'queued'
                     CHECK (state IN ('queued', 'running', 'succeeded', 'failed', 'timed_out')),

    owner            bytea       NOT NULL CHECK (octet_length(owner) = 32),
    leaderboard      text        NOT NULL,
    problem_dir      text        NOT NULL,
    file_name        text        NOT NULL,
    source_sha256    bytea       NOT NULL CHECK (octet_length(source_sha256) = 32),
    options          json        NOT NULL,

    -- attempt counts claims and names containers and objects; faults counts the attempts that we lost.
    attempt          integer     NOT NULL DEFAULT 0 CHECK (attempt >= 0),
    faults           integer     NOT NULL DEFAULT 0 CHECK (faults >= 0),
    max_attempts     integer     NOT NULL DEFAULT 3 CHECK (max_attempts > 0),
    run_token        uuid,
    lease_until      timestamptz,
    worker           text,
    cancel_requested boolean     NOT NULL DEFAULT false,
    not_before       timestamptz NOT NULL DEFAULT now(),

    created_at       timestamptz NOT NULL DEFAULT now(),
    started_at       timestamptz,
    ended_at         timestamptz,
    error            text,
    error_kind       text,
    last_fault       text,

    -- A job has a token and a lease exactly while somebody runs it.
    CONSTRAINT jobs_leased_while_running CHECK ((state = 'running') = (run_token IS NOT NULL AND lease_until IS NOT NULL)),
    CONSTRAINT jobs_ended_when_final CHECK ((state IN ('succeeded', 'failed', 'timed_out')) = (ended_at IS NOT NULL))
);

-- The head of the queue, and a job's position in it.
CREATE INDEX jobs_queue ON jobs (priority DESC, seq) WHERE state = 'queued';
CREATE INDEX jobs_leases ON jobs (lease_until) WHERE state = 'running';
CREATE INDEX jobs_by_owner ON jobs (owner, seq DESC);

COMMENT ON TABLE jobs IS 'One row a profiling job; the truth about its state.';
COMMENT ON COLUMN jobs.owner IS 'SHA-256 digest of the client''s credential; the credential itself is never stored.';
COMMENT ON COLUMN jobs.attempt IS 'How often the job was claimed.';
COMMENT ON COLUMN jobs.faults IS 'How many attempts ended by a fault of the service; at max_attempts the job fails.';
COMMENT ON COLUMN jobs.run_token IS 'Token of the attempt that may write; every write of a result must carry it.';
COMMENT ON COLUMN jobs.lease_until IS 'When the running attempt counts as dead unless it renews.';
COMMENT ON COLUMN jobs.error IS 'The sentence that the user reads.';
COMMENT ON COLUMN jobs.error_kind IS 'Whose fault and which kind: user_*, timed_out, service_fault, cancelled.';
COMMENT ON COLUMN jobs.last_fault IS 'The operator''s text of the last fault of the service; never shown to users.';

-- Apart from jobs, so that the row that polls read stays small.
CREATE TABLE submissions (
    job_id uuid PRIMARY KEY REFERENCES jobs ON DELETE CASCADE,
    source text NOT NULL
);
COMMENT ON TABLE submissions IS 'The submitted source of each job.';

CREATE TABLE runs (
    job_id          uuid        NOT NULL REFERENCES jobs ON DELETE CASCADE,
    benchmark_index integer     NOT NULL CHECK (benchmark_index >= 0),
    -- json, not jsonb: the keys keep task.yml's order, which names artifacts and feeds the evaluator.
    benchmark       json        NOT NULL,
    state           text        NOT NULL DEFAULT 'queued'
                    CHECK (state IN ('queued', 'running', 'succeeded', 'failed', 'timed_out')),
    attempt         integer,
    exit_code       integer,
    error           text,
    error_kind      text,
    started_at      timestamptz,
    ended_at        timestamptz,
    simulated       boolean     NOT NULL DEFAULT false,
    artifact_name   text,
    artifact_path   text,
    artifact_bytes  bigint,
    artifact_sha256 bytea,
    PRIMARY KEY (job_id, benchmark_index),
    UNIQUE (job_id, artifact_name),
    CONSTRAINT runs_artifact_whole CHECK (
        (artifact_name IS NULL) = (artifact_path IS NULL)
        AND (artifact_name IS NULL) = (artifact_bytes IS NULL)
        AND (artifact_name IS NULL) = (artifact_sha256 IS NULL)),
    CONSTRAINT runs_succeed_with_artifact CHECK (state <> 'succeeded' OR artifact_name IS NOT NULL)
);
COMMENT ON TABLE runs IS 'One row a shape of a job.';
COMMENT ON COLUMN runs.simulated IS 'Made by the stand-in profiler, not by a GPU.';
COMMENT ON COLUMN runs.artifact_path IS 'Path of the zip in the artifact store.';

CREATE TABLE workers (
    name         text        PRIMARY KEY,
    host         text        NOT NULL,
    started_at   timestamptz NOT NULL DEFAULT now(),
    last_seen_at timestamptz NOT NULL DEFAULT now(),
    state        text        NOT NULL DEFAULT 'idle' CHECK (state IN ('idle', 'busy', 'draining', 'stopped')),
    job_id       uuid,
    version      text        NOT NULL
);
COMMENT ON TABLE workers IS 'One row a start of a worker process, with its heartbeat.';

-- One row: which service this database belongs to. It labels containers and folders, so that two services on one host
-- leave each other's alone.
CREATE TABLE instance (
    id     uuid    NOT NULL DEFAULT gen_random_uuid(),
    single boolean PRIMARY KEY DEFAULT true CHECK (single)
);
INSERT INTO instance DEFAULT VALUES;
COMMENT ON TABLE instance IS 'One row: identity of the service that this database belongs to.';
