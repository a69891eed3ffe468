//! What the worker and the program inside the container say to each other.
//!
//! The library part holds only the [`protocol`]; the worker depends on it so that both sides read one definition.

pub mod protocol;
