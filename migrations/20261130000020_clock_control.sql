-- A duration means little without the clocks that it was measured with.
ALTER TABLE runs ADD COLUMN clock_control text CHECK (clock_control IN ('base', 'none'));
COMMENT ON COLUMN runs.clock_control IS 'With which clocks the report was made, as ncu --clock-control has it.';
