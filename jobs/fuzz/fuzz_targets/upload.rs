#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| ncu_api::fuzzing::upload(input));
