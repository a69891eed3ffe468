//! The runner is a program and no library, so its reader is included.

#![no_main]
#![allow(dead_code, reason = "of the included files only the reader is used")]

#[path = "../../../docker/runner/src/files.rs"]
mod files;
#[path = "../../../docker/runner/src/fuzzing.rs"]
mod fuzzing;
#[path = "../../../docker/runner/src/launches.rs"]
mod launches;
#[path = "../../../docker/runner/src/selection.rs"]
mod selection;
#[path = "../../../docker/runner/src/trace.rs"]
mod trace;
#[path = "../../../docker/runner/src/trouble.rs"]
mod trouble;

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzzing::trace(input));
