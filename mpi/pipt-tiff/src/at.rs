//! Where the bytes of a file come from.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes that several threads can read at once, each where it likes.
pub trait ReadAt: Send + Sync {
    /// How many bytes there are.
    ///
    /// # Errors
    ///
    /// The operating system does not tell.
    fn size(&self) -> io::Result<u64>;

    /// Fills the slice with the bytes from `offset` on.
    ///
    /// # Errors
    ///
    /// They cannot be read, or there are not so many.
    fn read_exact_at(&self, into: &mut [u8], offset: u64) -> io::Result<()>;
}

impl ReadAt for File {
    fn size(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_exact_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        FileExt::read_exact_at(self, into, offset)
    }
}

impl ReadAt for Vec<u8> {
    fn size(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }

    fn read_exact_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        let part = usize::try_from(offset).ok().and_then(|begin| {
            let end = begin.checked_add(into.len())?;
            self.get(begin..end)
        });
        into.copy_from_slice(part.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}
