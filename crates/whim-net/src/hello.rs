//! The server name in the first message of a TLS connection, without answering it.
//!
//! This parser reads the bytes of everything that connects to our port, before we know who it is.
//! So it keeps no state, allocates only the name that it returns, and checks every length before
//! use.

use thiserror::Error;

/// A ClientHello is no longer than this, in bytes, all records and headers together. Ours has less
/// than 400 bytes; those of common libraries less than 2,000.
pub const HELLO_MAX: usize = 16 << 10;
/// A ClientHello comes in no more records than this.
const RECORDS_MAX: usize = 8;

const RECORD_HEADER: usize = 5;
const CONTENT_HANDSHAKE: u8 = 22;
const HANDSHAKE_CLIENT_HELLO: u8 = 1;
const EXTENSION_SERVER_NAME: u16 = 0;
const NAME_TYPE_HOST: u8 = 0;
/// Longest name of the DNS.
const HOST_MAX: usize = 255;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum HelloError {
    #[error("The first message is not complete: {needed} bytes are needed")]
    Incomplete {
        /// So many bytes from the start of the connection are needed to go on.
        needed: usize,
    },
    #[error("The first bytes are no TLS: {0}")]
    Malformed(&'static str),
}

use HelloError::{Incomplete, Malformed};

/// Bytes of handshake messages, as they are split into one or more records.
struct Handshake<'a> {
    pieces: [&'a [u8]; RECORDS_MAX],
    count: usize,
}

/// Reads forward through a message, never past its end.
struct Cursor<'a, 'b> {
    handshake: &'b Handshake<'a>,
    piece: usize,
    offset: usize,
    left: usize,
}

impl Cursor<'_, '_> {
    fn byte(&mut self) -> Result<u8, HelloError> {
        if self.left == 0 {
            return Err(Malformed("a length inside the message is wrong"));
        }
        while self.piece < self.handshake.count {
            if let Some(byte) = self.handshake.pieces[self.piece].get(self.offset) {
                self.offset += 1;
                self.left -= 1;
                return Ok(*byte);
            }
            self.piece += 1;
            self.offset = 0;
        }
        Err(Malformed("a length inside the message is wrong"))
    }

    fn number(&mut self, width: usize) -> Result<usize, HelloError> {
        let mut value = 0;
        for _ in 0..width {
            value = value << 8 | usize::from(self.byte()?);
        }
        Ok(value)
    }

    fn skip(&mut self, length: usize) -> Result<(), HelloError> {
        for _ in 0..length {
            self.byte()?;
        }
        Ok(())
    }

    /// Skips a vector whose length stands before it in `width` bytes.
    fn skip_vector(&mut self, width: usize) -> Result<(), HelloError> {
        let length = self.number(width)?;
        self.skip(length)
    }
}

/// Cuts the start of a connection into records, until the first handshake message is whole.
fn message(bytes: &[u8]) -> Result<(Handshake<'_>, usize), HelloError> {
    let mut handshake = Handshake {
        pieces: [&[]; RECORDS_MAX],
        count: 0,
    };
    let mut at = 0;
    let mut have = 0;
    let mut header = [0_u8; 4];
    loop {
        if handshake.count == RECORDS_MAX {
            return Err(Malformed("the first message is in too many records"));
        }
        let start = at + RECORD_HEADER;
        // Refuse at the first wrong byte, so that we never wait for the rest of something else.
        match bytes.get(at) {
            Some(&CONTENT_HANDSHAKE) => {}
            Some(_) => return Err(Malformed("not a handshake record")),
            None => return Err(Incomplete { needed: start }),
        }
        if bytes.get(at + 1).is_some_and(|major| *major != 3) {
            return Err(Malformed("not a TLS record"));
        }
        let Some(record) = bytes.get(at..start) else {
            return Err(Incomplete { needed: start });
        };
        let length = usize::from(record[3]) << 8 | usize::from(record[4]);
        if length == 0 || length > 16384 {
            return Err(Malformed("a record's length is wrong"));
        }
        let end = start + length;
        if end > HELLO_MAX {
            return Err(Malformed("the first message is too long"));
        }
        let Some(piece) = bytes.get(start..end) else {
            return Err(Incomplete { needed: end });
        };
        handshake.pieces[handshake.count] = piece;
        handshake.count += 1;
        for (slot, byte) in header.iter_mut().skip(have).zip(piece) {
            *slot = *byte;
        }
        have += length;
        at = end;
        if have < header.len() {
            continue;
        }
        if header[0] != HANDSHAKE_CLIENT_HELLO {
            return Err(Malformed("not a ClientHello"));
        }
        let body =
            usize::from(header[1]) << 16 | usize::from(header[2]) << 8 | usize::from(header[3]);
        if body > HELLO_MAX {
            return Err(Malformed("the first message is too long"));
        }
        if have >= header.len() + body {
            return Ok((handshake, body));
        }
    }
}

/// Server name that a ClientHello asks for, in lower case; `None`: it names none.
///
/// `bytes` are the first bytes of a connection, as many as are there.
///
/// # Errors
/// [`HelloError::Incomplete`]: call again with at least so many bytes. [`HelloError::Malformed`]:
/// close the connection.
pub fn server_name(bytes: &[u8]) -> Result<Option<String>, HelloError> {
    let (handshake, body) = message(bytes)?;
    let mut cursor = Cursor {
        handshake: &handshake,
        piece: 0,
        offset: 0,
        left: 4 + body,
    };
    cursor.skip(4)?;
    cursor.skip(2 + 32)?; // version, random
    cursor.skip_vector(1)?; // session
    cursor.skip_vector(2)?; // cipher suites
    cursor.skip_vector(1)?; // compression
    if cursor.left == 0 {
        return Ok(None);
    }
    if cursor.number(2)? != cursor.left {
        return Err(Malformed("a length inside the message is wrong"));
    }
    let mut name = None;
    while cursor.left > 0 {
        let kind = cursor.number(2)?;
        let length = cursor.number(2)?;
        if kind != usize::from(EXTENSION_SERVER_NAME) {
            cursor.skip(length)?;
            continue;
        }
        if name.is_some() {
            return Err(Malformed("two server names"));
        }
        name = Some(host_name(&mut cursor, length)?);
    }
    Ok(name)
}

/// The extension's content: a list that must hold exactly one host name.
fn host_name(cursor: &mut Cursor<'_, '_>, length: usize) -> Result<String, HelloError> {
    let bad = Malformed("the server name is not one");
    let list = cursor.number(2)?;
    if list + 2 != length || cursor.byte()? != NAME_TYPE_HOST {
        return Err(bad);
    }
    let host = cursor.number(2)?;
    if host + 3 != list || host == 0 || host > HOST_MAX {
        return Err(bad);
    }
    let mut name = String::with_capacity(host);
    for _ in 0..host {
        let byte = cursor.byte()?.to_ascii_lowercase();
        if !matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_') {
            return Err(bad);
        }
        name.push(char::from(byte));
    }
    Ok(name)
}

/// Entry for fuzzers: any input must be parsed without a panic, `Incomplete` must ask for more than
/// is there and stay within the limit, and a longer prefix must not change a verdict.
pub fn fuzz_client_hello(data: &[u8]) {
    let whole = server_name(data);
    if let Err(Incomplete { needed }) = whole {
        assert!(needed > data.len(), "more is asked for");
        assert!(
            needed <= HELLO_MAX + RECORD_HEADER,
            "not more than the limit"
        );
    }
    let half = server_name(&data[..data.len() / 2]);
    if !matches!(half, Err(Incomplete { .. })) {
        assert_eq!(half, whole, "a verdict stands");
    }
    if let Ok(Some(name)) = whole {
        // Whatever is routed is a name of ours.
        let _ = crate::name::Route::of(&name);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A ClientHello with these extensions, cut into records of `cut` bytes.
    fn hello(extensions: &[(u16, Vec<u8>)], cut: usize) -> Vec<u8> {
        let two = |n: usize| u16::try_from(n).expect("short").to_be_bytes();
        let mut body = vec![3, 3];
        body.extend_from_slice(&[7; 32]);
        body.push(32);
        body.extend_from_slice(&[8; 32]);
        body.extend_from_slice(&[0, 2, 0x13, 1, 1, 0]);
        let all: Vec<u8> = extensions
            .iter()
            .flat_map(|(kind, content)| {
                [&kind.to_be_bytes()[..], &two(content.len()), content].concat()
            })
            .collect();
        body.extend_from_slice(&two(all.len()));
        body.extend_from_slice(&all);
        let mut message = vec![1, 0];
        message.extend_from_slice(&two(body.len()));
        message.extend_from_slice(&body);
        message
            .chunks(cut)
            .flat_map(|piece| [&[22, 3, 1][..], &two(piece.len()), piece].concat())
            .collect()
    }

    fn name_extension(name: &[u8]) -> (u16, Vec<u8>) {
        let two = |n: usize| u16::try_from(n).expect("short").to_be_bytes();
        (
            0,
            [&two(name.len() + 3)[..], &[0], &two(name.len()), name].concat(),
        )
    }

    #[test]
    fn the_name_is_found() {
        let bytes = hello(
            &[(43, vec![2, 3, 4]), name_extension(b"J-7.Home.whim")],
            16384,
        );
        assert_eq!(server_name(&bytes), Ok(Some("j-7.home.whim".into())));
        assert_eq!(server_name(&hello(&[(43, vec![1])], 99)), Ok(None));
    }

    #[test]
    fn what_is_wrong_is_refused() {
        let twice = [name_extension(b"a.whim"), name_extension(b"b.whim")];
        for bytes in [
            b"GET / HTTP/1.1\r\n".to_vec(),
            b"SSH-2.0-x\r\n".to_vec(),
            vec![22, 3, 1, 0, 0],
            vec![22, 3, 1, 0xff, 0xff],
            vec![22, 9],
            vec![22, 3, 1, 0, 4, 2, 0, 0, 0],
            vec![22, 3, 1, 0, 4, 1, 0xff, 0, 0],
            hello(&twice, 16384),
            hello(&[name_extension(b"")], 16384),
            hello(&[name_extension(b"a b")], 16384),
            hello(&[name_extension(&[b'a'; 256])], 16384),
            hello(&[(0, vec![0, 9, 0, 0, 1, b'a'])], 16384),
            hello(&[name_extension(b"a.whim")], 4),
        ] {
            assert!(
                matches!(server_name(&bytes), Err(Malformed(_))),
                "{bytes:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn every_prefix_is_incomplete_and_the_whole_is_right(
            name in "[a-z0-9]{1,40}\\.whim",
            cut in 90usize..400,
        ) {
            let bytes = hello(&[(10, vec![0; 9]), name_extension(name.as_bytes())], cut);
            for length in 0..bytes.len() {
                match server_name(&bytes[..length]) {
                    Err(Incomplete { needed }) => prop_assert!(needed > length),
                    other => prop_assert!(false, "{length}: {other:?}"),
                }
            }
            prop_assert_eq!(server_name(&bytes), Ok(Some(name)));
            fuzz_client_hello(&bytes);
        }

        #[test]
        fn anything_is_parsed(
            bytes in prop::collection::vec(any::<u8>(), 0..400),
            name in "[a-z]{1,20}",
            at in 0usize..200,
            value in any::<u8>(),
        ) {
            fuzz_client_hello(&bytes);
            // Near misses go deeper than noise.
            let mut near = hello(&[(10, vec![0; 9]), name_extension(name.as_bytes())], 100);
            let at = at % near.len();
            near[at] = value;
            fuzz_client_hello(&near);
        }
    }
}
