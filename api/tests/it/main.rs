//! The API as its clients meet it: over HTTP, with a real Postgres, and a `KernelBot` played by a small server.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should say so and stop")]

mod admin;
mod admission;
mod artifacts;
mod client;
mod configuration;
mod connections;
mod health;
mod job_bodies;
mod kernelbot;
mod openapi;
mod outages;
mod own_jobs;
mod page;
mod process;
mod quotas;
mod raw;
mod refusals;
mod reports;
mod reuse;
mod secrets;
mod stack;
mod submissions;
mod support;
mod waiting;
