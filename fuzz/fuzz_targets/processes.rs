#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| whim_machine::fuzz::processes(data));
