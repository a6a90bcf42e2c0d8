//! A process that has stopped, and is known to be this supervisor's.
//!
//! To let a process go so that it does not notice, memory is mapped in it and registers are written. Its number
//! may be another process's by the time it stops, or it may have begun another program, which may have rights that
//! whoever moves it does not have. Such a one is left as it is. So a stopped process comes out of this module as
//! [`Ours`] or not at all: there is no way to let go what has not been looked at since it stopped. What has, is
//! what it was until it goes on, because nothing runs in it.

use crate::holding::Holding;
use crate::outward::OutwardError;
use crate::subject::Subject;
use std::ops::{Deref, DerefMut};
use whim_image::freeze::{FreezeError, Frozen};
use whim_sys::opened;

#[derive(Debug)]
pub(crate) struct Ours(Frozen);

impl Ours {
    /// Looks at a process that has stopped. One that is not ours is dropped: it goes on as the kernel has it,
    /// with nothing made in it.
    ///
    /// # Errors
    /// It is another process or another program now, or we may not have it any more.
    pub(crate) fn known(frozen: Frozen, subject: &Subject) -> Result<Self, OutwardError> {
        subject.check()?;
        // No execution of a program is reported of a thread that was seized only to be stopped, and none before.
        if opened::is_outdated(frozen.pid()) {
            return Err(FreezeError::Replaced(frozen.pid()).into());
        }
        Ok(Self(frozen))
    }

    /// Lets it go on, so that it does not notice; `holding` keeps what still has to be attended.
    ///
    /// # Errors
    /// [`FreezeError`]; it goes on all the same, and may notice.
    pub(crate) fn let_go(self, holding: &mut Holding) -> Result<(), FreezeError> {
        *holding = Holding::new(self.0.release()?);
        Ok(())
    }

    /// Hands it to the code that turns it into a deputy, once its guest has started: it is not let go any more.
    #[must_use]
    pub(crate) fn depart(self) -> Frozen {
        self.0
    }
}

impl Deref for Ours {
    type Target = Frozen;

    fn deref(&self) -> &Frozen {
        &self.0
    }
}

impl DerefMut for Ours {
    fn deref_mut(&mut self) -> &mut Frozen {
        &mut self.0
    }
}
