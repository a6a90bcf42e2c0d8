//! What the guest's threads ask for.

use super::Away;
use crate::server::{FileMapping, ServeError};
use whim_journey::message::ToHome;

impl Away {
    /// Does what a thread asks; every other message is dealt with elsewhere.
    pub(super) fn request(&mut self, request: ToHome, tail: &[u8]) -> Result<(), ServeError> {
        match request {
            ToHome::Call(request) => {
                let whole = self.tails.finish(request.tid, tail);
                self.server.call(request, &whole)
            }
            ToHome::MapFile {
                tid,
                sequence,
                length,
                protection,
                flags,
                fd,
                offset,
            } => self.server.map_file(&FileMapping {
                tid,
                sequence,
                length,
                protection,
                flags,
                fd,
                offset,
            }),
            ToHome::Disposition {
                tid,
                sequence,
                signal,
                disposition,
                flags,
            } => self
                .server
                .disposition(tid, sequence, signal, disposition, flags),
            ToHome::Await {
                tid,
                sequence,
                awaited,
            } => self.server.await_call(tid, sequence, awaited),
            ToHome::Cancel { tid, sequence } => self.server.cancel(tid, sequence),
            ToHome::NewThread {
                tid,
                sequence,
                flags,
            } => self.server.new_thread(tid, sequence, flags),
            ToHome::ThreadExit {
                tid,
                sequence,
                code,
            } => self.server.thread_exit(tid, sequence, code),
            _ => Ok(()),
        }
    }
}
