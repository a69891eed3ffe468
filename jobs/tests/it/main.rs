//! The domain against real things: a Postgres server and a container engine.

mod queue;
mod support;
