#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _heard = pipt::together::fuzz::fuzz(data);
});
