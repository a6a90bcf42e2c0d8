//! Raw Linux kernel interfaces as owner types. All `unsafe` code of the workspace lives here.

pub mod crash;
pub mod process_vm;
pub mod ptrace;
pub mod resident;
pub mod credentials;
pub mod namespace;
pub mod tun;
pub mod cpu;
pub mod fdpass;
pub mod pidfd;
pub mod procmap;
pub mod seccomp;
pub mod spawn;
pub mod startup;
pub mod uffd;
pub mod foreign;
pub mod pagemap;
pub mod stub;
pub mod spin;
pub mod lease;
