//! Fuzzes [`aos_fuzz::http_body`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| aos_fuzz::http_body(data));
