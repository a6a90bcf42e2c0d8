//! An installed MPI, behind one table of functions.
//!
//! Programs link no MPI. They open the library that is made of this crate, one for each MPI, and ask it for its
//! table ([`abi`]): `pipt-load` does so. With the feature `link` this is the Rust library below it, which tools
//! that are built for one MPI use without the table.

pub mod abi;
