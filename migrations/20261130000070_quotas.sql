-- What the quotas of a user count, at each submission: jobs that have not ended, and those of the last hour.
CREATE INDEX jobs_unfinished_by_owner ON jobs (owner) WHERE state IN ('queued', 'running');
CREATE INDEX jobs_by_owner_and_time ON jobs (owner, created_at DESC);
