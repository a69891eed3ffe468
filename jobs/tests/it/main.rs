//! The domain against real things: a Postgres server and a container engine.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test's helpers fail the test")]

mod admin;
mod adoption;
mod configuration;
mod doctor;
mod gpu;
mod history;
mod operating;
mod queue;
mod retention;
mod reuse;
mod sandbox;
mod supply_chain;
mod support;
mod views;
