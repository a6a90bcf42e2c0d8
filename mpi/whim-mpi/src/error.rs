//! What went wrong in an MPI.

use mpi_sys as c;
use std::ffi::{c_char, c_int};
use std::fmt;

/// What went wrong in an MPI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MpiError {
    /// The class of an MPI's error, and its sentence.
    Mpi(i32, String),
    /// What is not asked of the MPI.
    Refused(String),
}

impl fmt::Display for MpiError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mpi(_, said) | Self::Refused(said) => to.write_str(said),
        }
    }
}

impl std::error::Error for MpiError {}

/// The meaning of what a function of MPI returns.
pub fn checked(code: c_int) -> Result<(), MpiError> {
    if code == 0 {
        return Ok(());
    }
    let mut class = code;
    let mut sentence: Vec<c_char> = vec![0; c::MPI_MAX_ERROR_STRING as usize + 1];
    let mut length = 0;
    // JUSTIFICATION: calls of C.
    // SAFETY: the sentence has a place of the length that MPI says is the longest; the others are our own
    // variables.
    let known = unsafe {
        c::MPI_Error_class(code, &raw mut class);
        c::MPI_Error_string(code, sentence.as_mut_ptr(), &raw mut length) == 0
    };
    Err(MpiError::Mpi(
        class.max(1),
        match known {
            // MPICH adds the calls in which it was found, a line each.
            true => text(&sentence, length).replace('\n', " "),
            false => format!("error {code}, which it does not explain"),
        },
    ))
}

/// The first characters of a text of C's.
pub fn text(characters: &[c_char], length: c_int) -> String {
    let length = usize::try_from(length).unwrap_or(0).min(characters.len());
    let bytes: Vec<u8> = characters[..length]
        .iter()
        .map(|character| character.cast_unsigned())
        .take_while(|byte| *byte != 0)
        .collect();
    String::from_utf8_lossy(&bytes).trim_end().to_owned()
}
