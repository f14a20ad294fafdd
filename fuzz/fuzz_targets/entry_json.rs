//! Fuzzes [`aos_fuzz::entry_json`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| aos_fuzz::entry_json(data));
