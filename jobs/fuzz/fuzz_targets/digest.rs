#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| jobs::fuzzing::digest(input));
