//! Descriptors over unix sockets (SCM_RIGHTS).

use std::io::IoSlice;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use thiserror::Error;

/// No message carries more descriptors.
pub const DESCRIPTORS_MAX: usize = 8;

#[derive(Debug, Error)]
pub enum FdPassError {
    #[error("{0} descriptors do not fit into one message, the limit is {DESCRIPTORS_MAX}")]
    TooMany(usize),
    #[error("A message without bytes cannot carry descriptors")]
    Empty,
    #[error("Failed to send a descriptor over a unix socket: {0}")]
    Send(Errno),
    #[error("Failed to receive from a unix socket: {0}")]
    Receive(Errno),
    #[error(
        "The message carries more descriptors than expected, or this process may open no more (raise its limit of open files)"
    )]
    Truncated,
}

impl FdPassError {
    /// Whether the call only has to be repeated when the socket is ready.
    #[must_use]
    pub fn would_block(&self) -> bool {
        matches!(
            self,
            Self::Send(Errno::EAGAIN) | Self::Receive(Errno::EAGAIN)
        )
    }
}

/// Sends `bytes` with `descriptors` attached to the first of them. Returns how many bytes were
/// sent. All descriptors were sent with them; on an error, none were.
///
/// # Errors
/// Too many descriptors, no bytes, or what sendmsg(2) says; never SIGPIPE.
pub fn send(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> Result<usize, FdPassError> {
    if descriptors.len() > DESCRIPTORS_MAX {
        return Err(FdPassError::TooMany(descriptors.len()));
    }
    if bytes.is_empty() {
        return Err(FdPassError::Empty);
    }
    let raw: Vec<RawFd> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&raw)];
    let control = if raw.is_empty() { &[][..] } else { &rights[..] };
    loop {
        let parts = [IoSlice::new(bytes)];
        match sendmsg::<()>(
            socket.as_raw_fd(),
            &parts,
            control,
            MsgFlags::MSG_NOSIGNAL,
            None,
        ) {
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(FdPassError::Send(errno)),
            Ok(length) => return Ok(length),
        }
    }
}

/// Room for one control message with [`DESCRIPTORS_MAX`] descriptors, and one with a sender,
/// aligned like their headers.
#[repr(C, align(8))]
struct ControlSpace([u8; 80]);

const _: () = {
    // JUSTIFICATION: CMSG_SPACE is a pure computation that libc marks unsafe.
    // SAFETY: it reads nothing but its argument.
    let needed = unsafe { libc::CMSG_SPACE(DESCRIPTORS_BYTES) + libc::CMSG_SPACE(SENDER_BYTES) };
    assert!(needed as usize == size_of::<ControlSpace>());
    assert!(SENDER_BYTES as usize == size_of::<libc::ucred>());
};
/// [`DESCRIPTORS_MAX`] descriptors, in bytes.
const DESCRIPTORS_BYTES: u32 = 8 * 4;
/// pid, uid and gid, in bytes.
const SENDER_BYTES: u32 = 3 * 4;

/// The process that has sent a message, as the kernel saw it at that time.
pub type Sender = crate::credentials::Peer;

/// Asks the kernel to say, for each message that comes from now on, who has sent it
/// ([`receive_from`]).
///
/// # Errors
/// The descriptor is no unix socket.
pub fn ask_for_senders(socket: BorrowedFd<'_>) -> Result<(), FdPassError> {
    nix::sys::socket::setsockopt(&socket, nix::sys::socket::sockopt::PassCred, &true)
        .map_err(FdPassError::Receive)
}

/// As [`receive`], with the sender of the bytes, or `None` if senders had not been asked for when
/// they were sent.
///
/// # Errors
/// As [`receive`].
pub fn receive_from(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
) -> Result<(usize, Vec<OwnedFd>, Option<Sender>), FdPassError> {
    receive_all(socket, buffer)
}

/// Receives bytes into `buffer`, and the descriptors that came with them (close-on-exec). A length
/// of 0 means that the peer has closed.
///
/// # Errors
/// What recvmsg(2) says; or not all descriptors could be accepted, and those that came are closed.
pub fn receive(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
) -> Result<(usize, Vec<OwnedFd>), FdPassError> {
    let (length, owned, _) = receive_all(socket, buffer)?;
    Ok((length, owned))
}

fn receive_all(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
) -> Result<(usize, Vec<OwnedFd>, Option<Sender>), FdPassError> {
    let mut space = ControlSpace([0; 80]);
    let mut part = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast::<libc::c_void>(),
        iov_len: buffer.len(),
    };
    // JUSTIFICATION: the struct has private padding on some targets and no constructor.
    // SAFETY: all zero is a valid msghdr: no name, no parts, no control.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    header.msg_control = (&raw mut space).cast::<libc::c_void>();
    header.msg_controllen = size_of::<ControlSpace>();
    let length = loop {
        // JUSTIFICATION: nix's wrapper gives out no descriptor of a truncated message, and the
        // descriptors that the kernel has installed for it would stay open for ever.
        // SAFETY: every pointer in `header` is to a live local of the length beside it.
        let result =
            unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, libc::MSG_CMSG_CLOEXEC) };
        match (usize::try_from(result), Errno::last()) {
            (Ok(length), _) => break length,
            (Err(_), Errno::EINTR) => {}
            (Err(_), errno) => return Err(FdPassError::Receive(errno)),
        }
    };
    let (owned, sender) = take_control(&header);
    // Into the room for a sender, more descriptors than the limit would fit.
    if header.msg_flags & libc::MSG_CTRUNC != 0 || owned.len() > DESCRIPTORS_MAX {
        return Err(FdPassError::Truncated);
    }
    Ok((length, owned, sender))
}

/// Owns each descriptor that a received message brought, and reads who has sent it.
fn take_control(header: &libc::msghdr) -> (Vec<OwnedFd>, Option<Sender>) {
    let mut owned = Vec::new();
    let mut sender = None;
    // JUSTIFICATION: control messages are laid out by the kernel and walked by these macros.
    // SAFETY: recvmsg has filled `header`, whose control buffer is alive and aligned; the macros
    // stay within msg_controllen, and each descriptor lies within its message's cmsg_len. The
    // kernel has just installed every one of them for us alone, and each becomes one owner.
    unsafe {
        let mut message = libc::CMSG_FIRSTHDR(header);
        while !message.is_null() {
            let about = &*message;
            if about.cmsg_level == libc::SOL_SOCKET && about.cmsg_type == libc::SCM_RIGHTS {
                let data = libc::CMSG_DATA(message).cast::<RawFd>();
                let bytes = about.cmsg_len.saturating_sub(libc::CMSG_LEN(0) as usize);
                for index in 0..bytes / size_of::<RawFd>() {
                    owned.push(OwnedFd::from_raw_fd(data.add(index).read_unaligned()));
                }
            }
            if about.cmsg_level == libc::SOL_SOCKET && about.cmsg_type == libc::SCM_CREDENTIALS {
                let said = libc::CMSG_DATA(message)
                    .cast::<libc::ucred>()
                    .read_unaligned();
                sender = (said.pid > 0).then_some(Sender {
                    pid: said.pid,
                    uid: said.uid,
                    gid: said.gid,
                });
            }
            message = libc::CMSG_NXTHDR(header, message);
        }
    }
    (owned, sender)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek, SeekFrom, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_descriptor_arrives_and_works() {
        let (left, right) = UnixStream::pair().expect("pair");
        let mut file = tempfile_in_memory();
        file.write_all(b"hello").expect("written");
        assert_eq!(send(left.as_fd(), b"x", &[file.as_fd()]).expect("sent"), 1);
        assert_eq!(send(left.as_fd(), b"yz", &[]).expect("sent"), 2);
        drop(left);
        let mut buffer = [0; 16];
        let (length, mut got) = receive(right.as_fd(), &mut buffer).expect("received");
        assert_eq!(
            (length, got.len()),
            (1, 1),
            "bytes after descriptors stay apart"
        );
        let mut copy = std::fs::File::from(got.remove(0));
        copy.seek(SeekFrom::Start(0)).expect("seek");
        let mut text = String::new();
        copy.read_to_string(&mut text).expect("read");
        assert_eq!(text, "hello");
        let flags = nix::fcntl::fcntl(copy.as_fd(), nix::fcntl::FcntlArg::F_GETFD).expect("flags");
        assert_eq!(flags & libc::FD_CLOEXEC, libc::FD_CLOEXEC);
        let (length, got) = receive(right.as_fd(), &mut buffer).expect("received");
        assert_eq!((&buffer[..length], got.len()), (&b"yz"[..], 0));
        assert_eq!(receive(right.as_fd(), &mut buffer).expect("closed").0, 0);
    }

    #[test]
    fn limits() {
        let (left, right) = UnixStream::pair().expect("pair");
        let many = vec![left.as_fd(); DESCRIPTORS_MAX + 1];
        assert!(matches!(
            send(left.as_fd(), b"x", &many),
            Err(FdPassError::TooMany(9))
        ));
        assert!(matches!(
            send(left.as_fd(), b"", &[]),
            Err(FdPassError::Empty)
        ));
        right.set_nonblocking(true).expect("nonblocking");
        let error = receive(right.as_fd(), &mut [0; 4]).expect_err("empty");
        assert!(error.would_block(), "{error}");
    }

    #[test]
    fn descriptors_that_do_not_fit_are_closed() {
        let (left, right) = UnixStream::pair().expect("pair");
        let (mut reader, writer) = std::io::pipe().expect("pipe");
        let raw = vec![writer.as_raw_fd(); DESCRIPTORS_MAX + 2];
        let rights = [ControlMessage::ScmRights(&raw)];
        let parts = [IoSlice::new(b"x")];
        sendmsg::<()>(left.as_raw_fd(), &parts, &rights, MsgFlags::empty(), None).expect("sent");
        let error = receive(right.as_fd(), &mut [0; 4]).expect_err("too many");
        assert!(matches!(error, FdPassError::Truncated), "{error}");
        drop(writer);
        // End of file only comes when no copy of the writer is left anywhere.
        assert_eq!(reader.read(&mut [0; 4]).expect("end"), 0);
    }

    #[test]
    fn the_kernel_says_who_has_sent_a_message() {
        let (left, right) = UnixStream::pair().expect("pair");
        send(left.as_fd(), b"a", &[]).expect("sent");
        let received = receive_from(right.as_fd(), &mut [0; 1]).expect("received");
        assert_eq!(received.2, None, "nobody has asked for it");
        ask_for_senders(right.as_fd()).expect("asked");
        send(left.as_fd(), b"b", &[left.as_fd()]).expect("sent");
        let (length, owned, sender) = receive_from(right.as_fd(), &mut [0; 4]).expect("received");
        assert_eq!((length, owned.len()), (1, 1));
        let sender = sender.expect("named");
        assert_eq!(sender.pid, std::process::id().cast_signed());
        assert_eq!(sender.uid, nix::unistd::getuid().as_raw());
    }

    fn tempfile_in_memory() -> std::fs::File {
        let flags = nix::sys::memfd::MFdFlags::MFD_CLOEXEC;
        nix::sys::memfd::memfd_create(c"fdpass", flags)
            .expect("memfd")
            .into()
    }
}
