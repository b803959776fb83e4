//! The control plane of a lab: API server, controller, scheduler, kubelets.

use crate::error::Result;
use crate::state::Store;
use crate::ui::Progress;

/// Starts the control plane.
///
/// # Errors
/// When a part of it does not come up.
pub fn start(_store: &Store, _progress: &Progress) -> Result<()> {
    Ok(())
}

/// Waits until every Node is ready.
///
/// # Errors
/// When one is not in time.
pub fn await_nodes(_store: &Store, _progress: &Progress) -> Result<()> {
    Ok(())
}
