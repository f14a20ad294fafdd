//! Fuzzes [`aos_fuzz::personal`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| aos_fuzz::personal(data));
