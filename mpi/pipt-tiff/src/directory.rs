//! The header of a file, and its directories.

use std::collections::{BTreeMap, HashSet};

use crate::at::ReadAt;
use crate::error::TiffError;
use crate::tag::{self, FieldType, Tag};

/// More directories than this are not looked for in a file.
pub const MAX_PAGES: usize = 1 << 20;

/// More tags than this are not taken from a directory: classic TIFF cannot have more.
pub const MAX_TAGS: u64 = 65_535;

/// More bytes than this are not taken from all tags of a directory: 8 bytes each for the place and length of
/// 2^24 chunks, and as many for all else. What is taken also lies within the file.
pub const MAX_DIRECTORY_BYTES: u64 = 1 << 29;

/// Order of the bytes of a file's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Little,
    Big,
}

impl Order {
    fn number(self, bytes: &[u8]) -> u64 {
        let add = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
        match self {
            Self::Little => bytes.iter().rev().fold(0, add),
            Self::Big => bytes.iter().fold(0, add),
        }
    }
}

/// The first bytes of a file, which say what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub order: Order,
    /// Whether it is a BigTIFF.
    pub big: bool,
    /// Where the first directory is.
    pub first: u64,
}

impl Header {
    /// # Errors
    ///
    /// The file cannot be read, or is no TIFF.
    pub fn read(from: &dyn ReadAt) -> Result<Self, TiffError> {
        let size = from
            .size()
            .map_err(TiffError::io("find the size of the file"))?;
        let mut bytes = vec![0; usize::try_from(size.min(16)).unwrap_or(16)];
        from.read_exact_at(&mut bytes, 0)
            .map_err(TiffError::io("read the first bytes of the file"))?;
        let not_tiff = || TiffError::NotTiff {
            begins: bytes.iter().copied().take(4).collect(),
        };
        let order = match bytes.get(..2) {
            Some(b"II") => Order::Little,
            Some(b"MM") => Order::Big,
            _ => return Err(not_tiff()),
        };
        let number = |from: usize, to: usize| bytes.get(from..to).map(|bytes| order.number(bytes));
        match (number(2, 4), number(4, 8), number(4, 6), number(8, 16)) {
            (Some(42), Some(first), ..) => Ok(Self {
                order,
                big: false,
                first,
            }),
            (Some(43), _, Some(8), Some(first)) => Ok(Self {
                order,
                big: true,
                first,
            }),
            _ => Err(not_tiff()),
        }
    }

    const fn entry(self) -> u64 {
        if self.big { 20 } else { 12 }
    }
}

/// The tags of one directory.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    /// Which one of the file it is, from 0.
    pub page: usize,
    /// In the file's order, which should be that of their numbers.
    pub tags: Vec<Tag>,
    /// Tags whose values could not be read, and why: an error only when they are needed.
    pub broken: BTreeMap<u16, String>,
}

fn within(from: &dyn ReadAt, what: &str, offset: u64, length: u64) -> Result<(), TiffError> {
    let size = from
        .size()
        .map_err(TiffError::io("find the size of the file"))?;
    let end = offset.saturating_add(length);
    if end > size {
        return Err(TiffError::Beyond {
            what: what.to_owned(),
            offset,
            end,
            size,
        });
    }
    Ok(())
}

fn bytes(from: &dyn ReadAt, what: &str, offset: u64, length: u64) -> Result<Vec<u8>, TiffError> {
    within(from, what, offset, length)?;
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
    from.read_exact_at(&mut bytes, offset)
        .map_err(TiffError::io(format!("read {what}")))?;
    Ok(bytes)
}

/// The entries of the directory at this place, and where the next one is (0: nowhere).
fn entries(
    from: &dyn ReadAt,
    header: Header,
    page: usize,
    offset: u64,
) -> Result<(Vec<u8>, u64), TiffError> {
    let what = format!("directory {page}");
    let width = if header.big { 8 } else { 2 };
    let count = header.order.number(&bytes(from, &what, offset, width)?);
    if count > MAX_TAGS {
        return Err(TiffError::Limit {
            what: format!("The number of tags of {what}"),
            is: count,
            most: MAX_TAGS,
        });
    }
    let length = count * header.entry();
    let entries = bytes(from, &what, offset + width, length)?;
    let width_of_next = if header.big { 8 } else { 4 };
    // A file that ends before the place of the next directory has none.
    let next = bytes(from, &what, offset + width + length, width_of_next)
        .map_or(0, |bytes| header.order.number(&bytes));
    Ok((entries, next))
}

/// Where the directories are, as far as they can be reached: a chain that leads out of the file, or back
/// into itself, ends there.
///
/// # Errors
///
/// The first one cannot be read, or there are more than [`MAX_PAGES`].
pub fn pages(from: &dyn ReadAt, header: Header) -> Result<Vec<u64>, TiffError> {
    let (mut pages, mut seen) = (Vec::new(), HashSet::new());
    let mut offset = header.first;
    while offset != 0 && seen.insert(offset) {
        let next = match entries(from, header, pages.len(), offset) {
            Ok((_, next)) => next,
            Err(problem) if pages.is_empty() => return Err(problem),
            Err(_) => break,
        };
        pages.push(offset);
        if pages.len() > MAX_PAGES {
            return Err(TiffError::Limit {
                what: "The number of directories".to_owned(),
                is: pages.len() as u64,
                most: MAX_PAGES as u64,
            });
        }
        offset = next;
    }
    Ok(pages)
}

impl Directory {
    /// # Errors
    ///
    /// It does not lie within the file, or has more tags, or larger ones, than is taken.
    pub fn read(
        from: &dyn ReadAt,
        header: Header,
        page: usize,
        offset: u64,
    ) -> Result<Self, TiffError> {
        let (entries, _) = entries(from, header, page, offset)?;
        let mut directory = Self {
            page,
            ..Self::default()
        };
        let mut left = MAX_DIRECTORY_BYTES;
        let width = usize::try_from(header.entry()).unwrap_or(12);
        for entry in entries.chunks_exact(width) {
            directory.take(from, header, entry, &mut left)?;
        }
        Ok(directory)
    }

    fn take(
        &mut self,
        from: &dyn ReadAt,
        header: Header,
        entry: &[u8],
        left: &mut u64,
    ) -> Result<(), TiffError> {
        let number = |from: usize, to: usize| header.order.number(&entry[from..to]);
        let tag = u16::try_from(number(0, 2)).unwrap_or(0);
        let code = u16::try_from(number(2, 4)).unwrap_or(0);
        let Some(kind) = FieldType::of_code(code) else {
            let problem = format!("its values are of the type {code}, which there is none");
            self.broken.insert(tag, problem);
            return Ok(());
        };
        let value = if header.big { 12 } else { 8 };
        let count = number(4, value);
        let length = count.saturating_mul(kind.bytes() as u64);
        let inline = &entry[value..];
        let read = if length <= inline.len() as u64 {
            Ok(inline[..usize::try_from(length).unwrap_or(0)].to_vec())
        } else {
            self.values(from, tag, (number(value, entry.len()), length), *left)?
        };
        match read {
            Ok(mut bytes) => {
                *left = left.saturating_sub(length);
                if header.order == Order::Big && kind.word() > 1 {
                    bytes
                        .chunks_exact_mut(kind.word())
                        .for_each(<[u8]>::reverse);
                }
                self.tags.push(Tag {
                    number: tag,
                    kind,
                    count,
                    bytes,
                });
            }
            Err(problem) => {
                self.broken.insert(tag, problem);
            }
        }
        Ok(())
    }

    /// The bytes of a tag's values, or why there are none. Only those that lie in the file take memory, and may be
    /// above the limit: others are the fault of the file, and the tag may be one that is not needed.
    fn values(
        &self,
        from: &dyn ReadAt,
        tag: u16,
        (offset, length): (u64, u64),
        left: u64,
    ) -> Result<Result<Vec<u8>, String>, TiffError> {
        let what = format!("tag {tag} of directory {}", self.page);
        if let Err(TiffError::Beyond { end, size, .. }) = within(from, &what, offset, length) {
            return Ok(Err(format!(
                "its values would lie at the bytes {offset}..{end} of the file, which has {size}"
            )));
        }
        if length > left {
            return Err(TiffError::Limit {
                what: format!("The bytes of the tags of directory {}", self.page),
                is: length.saturating_add(MAX_DIRECTORY_BYTES - left),
                most: MAX_DIRECTORY_BYTES,
            });
        }
        Ok(bytes(from, &what, offset, length).map_err(|problem| problem.to_string()))
    }

    /// The first tag of this number.
    #[must_use]
    pub fn tag(&self, number: u16) -> Option<&Tag> {
        self.tags.iter().find(|tag| tag.number == number)
    }

    pub(crate) fn bad(&self, number: u16, problem: impl Into<String>) -> TiffError {
        TiffError::Tag {
            directory: self.page,
            tag: number,
            name: tag::name(number),
            problem: problem.into(),
        }
    }

    /// All values of a tag that are integers; none if there is no such tag.
    pub(crate) fn numbers(&self, number: u16) -> Result<Option<Vec<u64>>, TiffError> {
        let Some(tag) = self.tag(number) else {
            return match self.broken.get(&number) {
                Some(problem) => Err(self.bad(number, problem)),
                None => Ok(None),
            };
        };
        match tag.numbers() {
            Some(values) if !values.is_empty() => Ok(Some(values)),
            Some(_) => Err(self.bad(number, "it has no value")),
            None => Err(self.bad(number, "its values are no integers")),
        }
    }

    /// The first value of a tag.
    pub(crate) fn number(&self, number: u16) -> Result<Option<u64>, TiffError> {
        Ok(self
            .numbers(number)?
            .and_then(|values| values.first().copied()))
    }

    /// The same where it must be there and fit.
    pub(crate) fn needed(&self, number: u16) -> Result<u32, TiffError> {
        let value = self.number(number)?;
        let value = value.ok_or_else(|| self.bad(number, "it is missing"))?;
        match u32::try_from(value) {
            Ok(value) if value > 0 => Ok(value),
            _ => Err(self.bad(number, format!("{value} cannot be"))),
        }
    }
}
