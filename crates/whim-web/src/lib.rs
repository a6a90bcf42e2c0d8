//! The page: the cluster in a browser, as it changes, and with the rights of the one who asked for it.
//!
//! Nobody looks on unasked. `whim web` gives a link that opens one session, once ([`sessions`]); the session
//! has the uid of the one who asked, and over loopback only this user's own connections may use it. Each
//! request is judged before anything is done ([`guard`]). What it then does goes through [`Backend`], which
//! the daemon implements with the very code that answers the command line: the page can do nothing that its
//! user could not do there.
//!
//! [`sessions`] and [`guard`] take no clock and no socket; [`serve`] and [`listen`] have the sockets.
#![forbid(unsafe_code)]

pub mod backend;
pub mod fuzz;
pub mod guard;
pub mod listen;
mod page;
pub mod serve;
pub mod sessions;

pub use backend::{Backend, Greeting, Order, Told};
