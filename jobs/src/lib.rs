//! The domain of ncu-service: which problems exist, which jobs wait, how a shape is captured, where its archive goes.
//!
//! Nothing here knows HTTP, but for the `/metrics` of [`telemetry`]. Inside, the [`sandbox`] and the [`collect`]or know nothing of SQL, and all SQL stands in
//! [`queue`].

pub mod admin;
pub mod artifacts;
pub mod browser;
pub mod capture;
pub mod collect;
pub mod config;
pub mod digest;
pub mod doctor;
pub mod error;
pub mod forecast;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod gpu;
pub mod ids;
pub mod page;
pub mod problems;
pub mod queue;
pub mod report;
pub mod retention;
pub mod sandbox;
pub mod telemetry;
pub mod text;
pub mod usage;
pub mod worker;

pub use error::{Error, Result};
