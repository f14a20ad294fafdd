//! Fuzzes [`aos_fuzz::policy_pattern`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| aos_fuzz::policy_pattern(data));
