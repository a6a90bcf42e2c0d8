//! Files that the process maps privately: the guest's copies of their pages are as the files are.
//!
//! Each file is watched by its inode, whatever becomes of its name. A write is told of before the call
//! that makes it returns, so the guest hears of a change before it can hear of anything that came
//! after it.

use super::Away;
use crate::moving::Transition;
use anyhow::Result;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use whim_image::maps::{self, MapEntry};
use whim_journey::message::ToGuest;
use whim_model::MappingId;

/// How often the guest is told of changes on which no result of its own depends.
const SAID_EVERY: Duration = Duration::from_millis(10);

impl Away {
    /// Watches the files of all mappings in the attic. To be called before the first page of it is
    /// given away.
    pub(super) fn follow_files(&mut self) {
        let pid = self.server.deputy.pid();
        let Ok(entries) = maps::read(pid) else {
            return;
        };
        self.files.begin_following();
        let kept = self.server.attic.all();
        let ids: BTreeMap<u64, MappingId> = kept.map(|(id, kept)| (kept.address, id)).collect();
        let mut known = BTreeMap::new();
        let mut unheard = 0u32;
        for entry in entries.iter().filter(|entry| entry.inode != 0) {
            let Some(id) = ids.get(&entry.range.start) else {
                continue;
            };
            let file = (entry.device, entry.inode);
            let watch = *known.entry(file).or_insert_with(|| {
                let mut paths = paths(pid, entry);
                let watch = paths.find_map(|path| self.files.follow(&path));
                unheard += u32::from(watch.is_none());
                watch
            });
            if let Some(watch) = watch {
                self.server.attic.set_watch(*id, watch);
            }
        }
        if unheard > 0 {
            tracing::info!(unheard, "changes of so many files will not be heard of");
        }
        self.note_short_files();
    }

    /// A file that was truncated in the meantime has taken pages from the program that travelled.
    fn note_short_files(&mut self) {
        let kept = self.server.attic.all();
        let written = kept.filter(|(_, kept)| kept.protection.writable());
        let ids: Vec<MappingId> = written.map(|(id, _)| id).collect();
        for id in ids {
            let length = self.server.attic.get(id).map_or(0, |kept| kept.length);
            if self.server.backed(id) < length {
                self.unsaid.insert(id);
            }
        }
    }

    /// Watches the file that the guest has just mapped, and no longer those that it maps no more.
    pub(super) fn follow_mapped(&mut self) {
        if let Some((id, fd)) = self.server.mapped.take() {
            let pid = self.server.deputy.pid();
            let exact = format!("/proc/{pid}/fd/{fd}");
            if let Some(watch) = self.files.follow(Path::new(&exact)) {
                self.server.attic.set_watch(id, watch);
            }
        }
        for watch in self.server.attic.take_unneeded() {
            self.files.unfollow(watch);
        }
    }

    /// Tells the guest which files have changed, before anything else that it is told from now on.
    pub(super) fn tell_of_written(&mut self) -> Result<()> {
        if !self.server.outgoing.is_empty() {
            // Trap: writes-to-memory-are-not-told
            self.files.ask_followed();
        }
        let written = self.files.take_written();
        if !written.is_empty() {
            let changed = self.server.attic.of_watches(&written);
            self.unsaid.extend(changed);
        }
        // What others write again and again must not keep the guest from its work. A guest that is about to
        // leave still gets results.
        let may_wait = self.leaves() || self.connections.calls.is_full();
        let due = !may_wait && self.until_said().is_zero();
        if self.unsaid.is_empty() || (self.server.outgoing.is_empty() && !due) {
            return Ok(());
        }
        self.said = Instant::now();
        self.say_unsaid()
    }

    /// A guest that is about to be elsewhere has its pages from us anew.
    fn leaves(&self) -> bool {
        let transition = self.transition.as_ref();
        transition.is_some_and(Transition::holds_signals)
    }

    /// Time until the guest is to be told of what has changed.
    pub(super) fn until_said(&self) -> Duration {
        if self.unsaid.is_empty() || self.leaves() {
            Duration::MAX
        } else {
            SAID_EVERY.saturating_sub(self.said.elapsed())
        }
    }

    /// The same for what was kept while the guest was about to leave.
    pub(super) fn say_unsaid(&mut self) -> Result<()> {
        for mapping in std::mem::take(&mut self.unsaid) {
            let backed = self.server.backed(mapping);
            if !self.server.attic.tells(mapping, backed) {
                continue;
            }
            let message = ToGuest::FileChanged { mapping, backed };
            self.connections.queue(&message, &[])?;
        }
        Ok(())
    }

    /// The guest is elsewhere now. It has nothing of files but what the program has written.
    pub(super) fn begin_unsaid(&mut self) -> Result<()> {
        self.unsaid.clear();
        self.server.attic.forget_told();
        self.note_short_files();
        self.say_unsaid()
    }
}

/// Ways to a mapped file: the mapping itself, which takes a right that most users lack, its name as the
/// process and as we see it, or a descriptor that the process has of it.
fn paths(pid: i32, entry: &MapEntry) -> impl Iterator<Item = PathBuf> + use<> {
    let range = entry.range;
    let exact = format!("/proc/{pid}/map_files/{:x}-{:x}", range.start, range.end);
    let named = !entry.deleted && entry.name.starts_with('/');
    let name = named.then(|| PathBuf::from(&entry.name));
    let inside = named.then(|| PathBuf::from(format!("/proc/{pid}/root{}", entry.name)));
    let inode = entry.inode;
    // A name may be that of another file, as we see it, or since it was mapped.
    let is_it =
        move |path: &PathBuf| std::fs::metadata(path).is_ok_and(|about| about.ino() == inode);
    let open = move || {
        let open = std::fs::read_dir(format!("/proc/{pid}/fd"));
        let open = open.into_iter().flatten().flatten().map(|one| one.path());
        open.filter(is_it)
    };
    let open = (!named).then(open).into_iter().flatten();
    std::iter::once(PathBuf::from(exact))
        .chain(inside.filter(is_it))
        .chain(name.filter(is_it))
        .chain(open)
}
