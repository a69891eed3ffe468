-- What a submission printed last, for the author of one that left no archive to look into.
ALTER TABLE runs ADD COLUMN output_tail text CHECK (octet_length(output_tail) <= 4096);
COMMENT ON COLUMN runs.output_tail IS 'The end of what the submission printed, where the shape failed or ran into its limit.';
