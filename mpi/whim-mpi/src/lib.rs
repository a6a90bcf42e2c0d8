//! An installed MPI, behind one table of functions.
//!
//! Programs link no MPI. They open the library that is made of this crate, one for each MPI, and ask it for its
//! table ([`abi`]): `pipt-load` does so. With the feature `link` this is the Rust library below it, too, for tools
//! that are built for one MPI: `World` and `File`.
//!
//! Messages and what is read and written may be longer than the `i32::MAX` elements that a call of MPI 3 takes: a
//! message goes as one element of a type of its own, and a file is read and written in parts.

pub mod abi;

#[cfg(feature = "link")]
mod constants;
#[cfg(feature = "link")]
mod datatype;
#[cfg(feature = "link")]
mod error;
#[cfg(feature = "link")]
mod file;
#[cfg(feature = "link")]
mod message;
#[cfg(feature = "link")]
mod request;
#[cfg(any(test, feature = "link"))]
mod seen;
#[cfg(feature = "link")]
mod table;
#[cfg(feature = "link")]
mod world;

#[cfg(feature = "link")]
pub use error::MpiError;
#[cfg(feature = "link")]
pub use file::{File, Mode, View};
#[cfg(feature = "link")]
pub use message::{Envelope, Receiving, Sending};
#[cfg(feature = "link")]
pub use table::whim_mpi_table;
#[cfg(feature = "link")]
pub use world::{Reduction, World, family, name};
