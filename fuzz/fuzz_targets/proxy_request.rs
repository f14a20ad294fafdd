//! Fuzzes [`aos_fuzz::proxy_request`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| aos_fuzz::proxy_request(data));
