//! What a capture is asked to hold, and the command lines that ask for it.

pub mod command;
pub mod options;
