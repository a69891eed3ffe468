-- What a shape launches, as far as a poll shows it; the archive has it in full.
ALTER TABLE runs
    ADD COLUMN launches json,
    ADD COLUMN coverage double precision CHECK (coverage BETWEEN 0 AND 1);
COMMENT ON COLUMN runs.launches IS 'The kernels that hold most of the time: [{kernel, count, total_ns, share}].';
COMMENT ON COLUMN runs.coverage IS 'Share of the time that the kernels in the report hold, going by the overview.';
