//! Tests of the table of system calls, in one binary.
#![forbid(unsafe_code)]

mod arguments;
mod common;
mod filter;
mod random;
mod shapes;
mod table;
