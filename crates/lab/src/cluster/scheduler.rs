//! The scheduler process of a lab.

use base64::Engine;
use kubelab::scheduler::SchedulerOptions;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::api::current_cluster;
use crate::error::{Doing, LabError, Result};
use crate::layout::Layout;

/// Runs until the process is ended.
///
/// # Errors
/// When its kubeconfig cannot be used.
pub fn run(layout: &Layout) -> Result<()> {
    crate::ui::log_to_stderr();
    let path = layout.dir().join("scheduler.kubeconfig");
    let cluster = current_cluster(&path)?;
    let text = std::fs::read_to_string(&path).doing(|| format!("read {}", path.display()))?;
    let config: Value =
        serde_saphyr::from_str(&text).doing(|| format!("decode {}", path.display()))?;
    let text_of = |value: &Value| value.as_str().map(str::to_owned);
    let token = text_of(&config["users"][0]["user"]["token"])
        .ok_or_else(|| LabError::new("the scheduler's kubeconfig has no token"))?;
    let authority = text_of(&cluster["certificate-authority-data"]).unwrap_or_default();
    let authority = base64::engine::general_purpose::STANDARD
        .decode(authority)
        .doing(|| "decode the cluster's authority".into())?;
    let options = SchedulerOptions {
        server: text_of(&cluster["server"]).unwrap_or_default(),
        ca_pem: String::from_utf8_lossy(&authority).into_owned(),
        token,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .doing(|| "start the runtime".into())?;
    runtime
        .block_on(kubelab::scheduler::run(options, CancellationToken::new()))
        .doing(|| "schedule".into())
}
