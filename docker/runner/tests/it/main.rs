//! The runner as a program, on the bare host: `--root` plays the container's root, and the stand-in ncu and the sample
//! problem play their parts, and are tested along with it.

#![allow(clippy::unwrap_used, reason = "all of this is test code, helpers included")]

mod bench;
mod captures;
mod exports;
mod hostile;
mod modes;
mod standin;
mod warm_calls;
