//! What the guest's threads ask for.

use super::Away;
use crate::server::{FileMapping, FileRemapping, ServeError};
use whim_journey::message::ToHome;

impl Away {
    /// Does what a thread asks; every other message is dealt with elsewhere.
    pub(super) fn request(&mut self, request: ToHome, tail: &[u8]) -> Result<(), ServeError> {
        self.execute(request, tail)?;
        self.follow_mapped();
        Ok(())
    }

    fn execute(&mut self, request: ToHome, tail: &[u8]) -> Result<(), ServeError> {
        match request {
            ToHome::Call(request) => {
                let whole = self.tails.finish(request.tid, tail);
                self.server.call(request, &whole)
            }
            ToHome::MapFile { .. } | ToHome::RemapFile { .. } => self.file_request(request),
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
            ToHome::Title { address } if self.recall.may_execute() => {
                self.server
                    .set_title(self.original.arguments, address, tail);
                Ok(())
            }
            ToHome::Released { mappings } => self.server.give_back(mappings),
            _ => Ok(()),
        }
    }

    /// Maps a file, or makes a mapping of one longer.
    fn file_request(&mut self, request: ToHome) -> Result<(), ServeError> {
        match request {
            ToHome::MapFile {
                tid,
                sequence,
                length,
                protection,
                flags,
                fd,
                offset,
            } => {
                let mapping = FileMapping {
                    tid,
                    sequence,
                    length,
                    protection,
                    flags,
                    fd,
                    offset,
                };
                self.server.map_file(&mapping)?;
            }
            ToHome::RemapFile {
                tid,
                sequence,
                mapping,
                offset,
                length,
                new_length,
                ends,
            } => {
                let remapping = FileRemapping {
                    tid,
                    sequence,
                    mapping,
                    offset,
                    length,
                    new_length,
                    ends,
                };
                self.server.remap_file(&remapping)?;
            }
            _ => {}
        }
        Ok(())
    }
}
