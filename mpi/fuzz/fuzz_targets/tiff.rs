#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _outcome = pipt_tiff::fuzz::fuzz(data);
});
