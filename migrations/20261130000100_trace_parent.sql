-- A job is one trace, across all processes that work at it.
ALTER TABLE jobs ADD COLUMN trace_parent text;
COMMENT ON COLUMN jobs.trace_parent IS 'The W3C traceparent of the request that brought the job; null where it was not traced.';
