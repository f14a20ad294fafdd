//! Fuzzes [`aos_fuzz::configuration`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| aos_fuzz::configuration(data));
