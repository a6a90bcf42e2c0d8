//! What has been written of a file that is not finished, so that it can be taken up again.
//!
//! A journal has a head of 24 bytes (eight letters, the design's fingerprint, a check of both) and 40 bytes
//! for each tile: its number, where it begins, how long it is, the hash of its bytes, and a check of these
//! four, all of 64 bits, the lowest byte first. A tile is entered after it was written. What a machine that
//! lost its power has not kept is found by the hashes.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;

use xxhash_rust::xxh3::xxh3_64;

const HEAD: &[u8; 8] = b"PIPTTIF1";
const ENTRY: usize = 40;

/// One tile that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) number: u64,
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) hash: u64,
}

#[derive(Debug)]
pub(crate) struct Journal(File);

fn with_check(numbers: &[u64]) -> Vec<u8> {
    let mut bytes: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
    let check = xxh3_64(&bytes);
    bytes.extend(check.to_le_bytes());
    bytes
}

fn head(fingerprint: u64) -> Vec<u8> {
    with_check(&[u64::from_le_bytes(*HEAD), fingerprint])
}

impl Journal {
    pub(crate) fn create(path: &Path, fingerprint: u64) -> io::Result<Self> {
        let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
        file.write_all(&head(fingerprint))?;
        Ok(Self(file))
    }

    /// Whether there is one with a whole head.
    pub(crate) fn is_begun(path: &Path) -> bool {
        std::fs::metadata(path).is_ok_and(|about| about.len() >= head(0).len() as u64)
    }

    pub(crate) fn add(&mut self, entry: Entry) -> io::Result<()> {
        let Entry {
            number,
            offset,
            length,
            hash,
        } = entry;
        // One call: a process that is killed leaves a whole entry or a part that its check does not fit.
        self.0
            .write_all(&with_check(&[number, offset, length, hash]))
    }

    /// The entries of a journal, up to the first one that is not whole; none if it is another design's.
    pub(crate) fn entries(path: &Path, fingerprint: u64) -> io::Result<Option<Vec<Entry>>> {
        let mut file = File::open(path)?;
        let expected = head(fingerprint);
        let mut has = vec![0; expected.len()];
        if file.read_exact(&mut has).is_err() || has != expected {
            return Ok(None);
        }
        let mut file = io::BufReader::new(file);
        let (mut entries, mut bytes) = (Vec::new(), [0; ENTRY]);
        while file.read_exact(&mut bytes).is_ok() {
            let words = bytes.as_chunks::<8>().0.iter();
            let words: Vec<u64> = words.map(|word| u64::from_le_bytes(*word)).collect();
            if with_check(&words[..4]) != bytes {
                break;
            }
            let [number, offset, length, hash] = [words[0], words[1], words[2], words[3]];
            entries.push(Entry {
                number,
                offset,
                length,
                hash,
            });
        }
        Ok(Some(entries))
    }

    /// Goes on behind the first entries.
    pub(crate) fn resume(path: &Path, entries: usize) -> io::Result<Self> {
        use std::io::{Seek, SeekFrom};
        let mut file = OpenOptions::new().write(true).open(path)?;
        file.set_len((head(0).len() + entries * ENTRY) as u64)?;
        file.seek(SeekFrom::End(0))?;
        Ok(Self(file))
    }
}
