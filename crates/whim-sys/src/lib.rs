//! Raw Linux kernel interfaces as owner types. All `unsafe` code of the workspace lives here.

pub mod cgroup;
pub mod cpu;
pub mod crash;
pub mod credentials;
pub mod dead;
pub mod fdpass;
pub mod foreign;
pub mod heap;
pub mod inherited;
pub mod lease;
pub mod namespace;
pub mod opened;
pub mod ownership;
pub mod pagemap;
pub mod pidfd;
pub mod priority;
pub mod process_vm;
pub mod procmap;
pub mod ptrace;
pub mod resident;
pub mod seccomp;
pub mod spawn;
pub mod spin;
pub mod startup;
pub mod stub;
pub mod tun;
pub mod uffd;

pub mod yama;
