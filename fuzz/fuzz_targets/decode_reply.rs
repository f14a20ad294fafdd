//! Fuzzes [`aos_fuzz::decode_reply`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| aos_fuzz::decode_reply(data));
