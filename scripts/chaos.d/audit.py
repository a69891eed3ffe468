"""What the database went through, noted by triggers of the run's own, and what is to be found in it and in the store at the end."""

import hashlib
import json
import os

# In the same transactions as the changes themselves, so it holds exactly what was committed.
SCHEMA = """
CREATE SCHEMA chaos;
CREATE TABLE chaos.changes (
    at timestamptz NOT NULL DEFAULT clock_timestamp(), job_id uuid, benchmark_index integer, state text, attempt integer,
    artifact_path text);
CREATE FUNCTION chaos.note_run() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO chaos.changes (job_id, benchmark_index, state, attempt, artifact_path)
    VALUES (NEW.job_id, NEW.benchmark_index, NEW.state, NEW.attempt, NEW.artifact_path);
    RETURN NULL; END $$;
CREATE FUNCTION chaos.note_job() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO chaos.changes (job_id, state, attempt) VALUES (NEW.id, NEW.state, NEW.attempt);
    RETURN NULL; END $$;
CREATE TRIGGER note AFTER UPDATE ON runs FOR EACH ROW
    WHEN (OLD.state IS DISTINCT FROM NEW.state OR OLD.artifact_path IS DISTINCT FROM NEW.artifact_path) EXECUTE FUNCTION chaos.note_run();
CREATE TRIGGER note AFTER UPDATE OF state ON jobs FOR EACH ROW
    WHEN (OLD.state IS DISTINCT FROM NEW.state) EXECUTE FUNCTION chaos.note_job();
-- One job meets more faults here than in a year of service, and none of them may end it.
ALTER TABLE jobs ALTER COLUMN max_attempts SET DEFAULT 1000;
"""

FINAL = "('succeeded', 'failed', 'timed_out')"


class Audit:
    def __init__(self, postgres):
        self.postgres = postgres
        postgres.execute(SCHEMA)

    def job_of_worker(self, log):
        """The job that a worker has in its hands; None while it has none."""
        with open(log, encoding="utf-8", errors="replace") as file:
            names = [word.split("=")[-1].strip('"') for line in file if "worker starts" in line for word in line.split() if word.startswith("worker=")]
        if not names:
            return None
        rows = self.postgres.rows(f"SELECT id FROM jobs WHERE state = 'running' AND worker = '{names[-1]}'")
        return rows[0]["id"] if rows else None

    def has_ended(self, job):
        return bool(self.postgres.rows(f"SELECT 1 FROM jobs WHERE id = '{job}' AND state IN {FINAL}"))

    def first_progress(self, since, job):
        """Seconds from `since` until a shape ended or a job moved on; None while nothing has."""
        of_job = f"AND job_id = '{job}'" if job else ""
        rows = self.postgres.rows(
            f"SELECT extract(epoch FROM min(at))::float8 - {since} AS seconds FROM chaos.changes WHERE at > to_timestamp({since}) AND state <> 'queued' {of_job}")
        return rows[0]["seconds"]

    def jobs(self):
        return self.postgres.rows("SELECT id, state, attempt, faults, error_kind, error, last_fault FROM jobs ORDER BY seq")

    def shapes(self):
        """Every shape, with how often a result of it was accepted."""
        return self.postgres.rows(
            f"""SELECT job_id, benchmark_index, state, attempt, error_kind, error, artifact_path, encode(artifact_sha256, 'hex') AS sha256,
                       (SELECT count(*) FROM chaos.changes c WHERE c.job_id = r.job_id AND c.benchmark_index = r.benchmark_index
                                                              AND c.state IN {FINAL}) AS accepted
                FROM runs r ORDER BY job_id, benchmark_index""")

    def save(self, folder):
        """The tables, for whoever looks into a failure."""
        for name in ("jobs", "runs", "workers", "chaos.changes"):
            with open(os.path.join(folder, f"{name.split('.')[-1]}.json"), "w", encoding="utf-8") as file:
                file.writelines(json.dumps(row) + "\n" for row in self.postgres.rows(f"SELECT * FROM {name}"))


def store_defects(folder, shapes):
    """Published archives that are missing or not as the tables have them."""
    found = []
    for shape in shapes:
        if shape["artifact_path"]:
            try:
                with open(os.path.join(folder, shape["artifact_path"]), "rb") as file:
                    if hashlib.sha256(file.read()).hexdigest() != shape["sha256"]:
                        found.append(f"{shape['artifact_path']} has been overwritten")
            except OSError as error:
                found.append(str(error))
    return found


def stray_archives(folder, shapes):
    """Files in the store that no row names."""
    published = {os.path.join(folder, shape["artifact_path"]) for shape in shapes if shape["artifact_path"]}
    return [os.path.join(place, name) for place, _, names in os.walk(folder) for name in names if os.path.join(place, name) not in published]
