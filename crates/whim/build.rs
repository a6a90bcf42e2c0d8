//! Links the unwinder into `whim`.
//!
//! `whim run` is in the way of every program that is started with it, and half of what it takes is loading. The shared
//! unwinder, libgcc_s, asks the CPU for its features when it is loaded: in a virtual machine each of these questions
//! goes to the hypervisor. Without it `whim run -- true` takes 0.4 ms less of 3.1 there. The static one belongs to the
//! same package as gcc. It comes before Rust's own request for the shared one, which then is not needed.

#![forbid(unsafe_code)]

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let gnu = std::env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|env| env == "gnu");
    if gnu {
        println!(
            "cargo::rustc-link-arg-bins=-Wl,--push-state,--whole-archive,-l:libgcc_eh.a,--pop-state"
        );
    }
}
