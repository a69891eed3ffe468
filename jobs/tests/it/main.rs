//! Tests against real things: a container engine, a database.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test's helpers fail the test")]

mod sandbox;
