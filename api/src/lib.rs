//! The HTTP side of ncu-service: takes submissions, answers polls, hands out archives.
//!
//! It knows the clients' contract and nothing of containers; what a job is, the `jobs` crate says.

pub mod admin;
pub mod app;
pub mod artifact;
pub mod auth;
pub mod cancel;
pub mod changes;
pub mod conditions;
pub mod config;
pub mod connections;
pub mod drain;
pub mod error;
pub mod events;
pub mod forecasts;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod health;
pub mod job;
pub mod kernelbot;
pub mod known;
pub mod list;
pub mod observe;
pub mod openapi;
pub mod page;
pub mod places;
pub mod profile;
pub mod report;
pub mod retry;
pub mod serve;
pub mod stall;
pub mod upload;
