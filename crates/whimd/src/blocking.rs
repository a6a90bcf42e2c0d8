//! How the daemon does what may keep a thread waiting.

use tokio::runtime::{Handle, RuntimeFlavor};

/// Does what may take as long as a disk stands still, or as the kernel takes over a control group or a new process. Other
/// threads of the runtime do meanwhile what else this one has to do; no lock may be held that they need.
pub(crate) fn blocking<T>(work: impl FnOnce() -> T) -> T {
    let runtime = Handle::try_current().map(|runtime| runtime.runtime_flavor());
    match runtime {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        // There are no others.
        _ => work(),
    }
}
