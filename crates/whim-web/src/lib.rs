//! The page: the cluster in a browser, as it changes, and with the rights of the user who asked for it.
//!
//! Nobody sees the page without a link. `whim web` gives a link that opens one session, once ([`sessions`]).
//! The session has the uid of the user who asked for it, and over loopback only this user's own connections may
//! use it. Each request is judged before anything is done ([`guard`]). What it then does goes through
//! [`Backend`], which the daemon implements with the very code that answers the command line. So the page can
//! do nothing that its user could not do there.
//!
//! [`sessions`] and [`guard`] use no clock and no socket; [`serve`] and [`listen`] have the sockets.
#![forbid(unsafe_code)]

pub mod backend;
pub mod fuzz;
pub mod guard;
pub mod listen;
mod page;
pub mod serve;
pub mod sessions;

pub use backend::{Backend, Greeting, Order, Told};
