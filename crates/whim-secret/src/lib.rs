//! What is kept from others: private files, tokens, texts that are never shown.
//!
//! The command line and the daemon share these. No cryptography is below them, so that the command
//! line builds none.
#![forbid(unsafe_code)]

pub mod address;
mod concealed;
pub mod files;
pub mod hexadecimal;
pub mod token;

pub use concealed::Concealed;
pub use token::Token;
