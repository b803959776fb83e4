//! Puts concurrent additions of ports into one transaction.
//!
//! While a transaction is on its way, what comes in meanwhile waits and goes together. When the
//! common transaction is refused, each goes alone, so that one bad port fails nobody else.

use std::collections::BTreeSet;

use tokio::sync::{mpsc, oneshot};

use super::Core;
use super::ports::{PortError, PortSpec};
use crate::ovsdb_session::OvsdbError;

/// Most ports in one transaction.
const BATCH: usize = 128;

/// A port to be added.
#[derive(Debug)]
pub(super) struct Add {
    pub(super) spec: PortSpec,
    pub(super) reply_tx: oneshot::Sender<Result<(), PortError>>,
}

/// Serves additions until nobody can ask for any.
pub(super) async fn run(core: Core, mut add_rx: mpsc::Receiver<Add>) {
    let mut batch = Vec::new();
    let mut deferred = Vec::new();
    loop {
        batch.append(&mut deferred);
        if batch.is_empty() && add_rx.recv_many(&mut batch, BATCH).await == 0 {
            return;
        }
        // The same name twice cannot be in one transaction; the second one sees what became of
        // the first.
        let mut names = BTreeSet::new();
        let mut together = Vec::new();
        for add in batch.drain(..) {
            if names.insert(add.spec.name.clone()) {
                together.push(add);
            } else {
                deferred.push(add);
            }
        }
        add_together(&core, together).await;
    }
}

async fn add_together(core: &Core, adds: Vec<Add>) {
    if let Err(error) = core.wait_connected(core.patience).await {
        for add in adds {
            let _ = add.reply_tx.send(Err(error.clone().into()));
        }
        return;
    }
    let rows = core.rows();
    let mut operations = Vec::new();
    let mut sent = Vec::new();
    for (number, add) in adds.into_iter().enumerate() {
        match add.spec.operations(&rows, number) {
            Ok(ops) => {
                operations.extend(ops);
                sent.push(add);
            }
            Err(error) => {
                let _ = add.reply_tx.send(Err(error));
            }
        }
    }
    if sent.is_empty() {
        return;
    }
    let result =
        if operations.is_empty() { Ok(Vec::new()) } else { core.transact(operations).await };
    match result {
        Ok(_) => {
            for add in sent {
                let _ = add.reply_tx.send(Ok(()));
            }
        }
        Err(OvsdbError::Refused(_)) if sent.len() > 1 => {
            for add in sent {
                let result = add_alone(core, &add.spec).await;
                let _ = add.reply_tx.send(result);
            }
        }
        Err(error) => {
            for add in sent {
                let _ = add.reply_tx.send(Err(add.spec.explain(error.clone())));
            }
        }
    }
}

async fn add_alone(core: &Core, spec: &PortSpec) -> Result<(), PortError> {
    let operations = spec.operations(&core.rows(), 0)?;
    if operations.is_empty() {
        return Ok(());
    }
    match core.transact(operations).await {
        Ok(_) => Ok(()),
        Err(error) => Err(spec.explain(error)),
    }
}
