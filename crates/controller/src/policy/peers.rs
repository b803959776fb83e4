//! Tells the other replicas what agents reported here.
//!
//! Each replica is told what it was not told yet; one that was started anew is told everything. So a
//! report reaches whoever leads, now or next, whichever replica the agent follows.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use antrea_runtime::CancellationToken;
use futures::StreamExt;
use kube_io::controlplane::{Controlplane, Route};
use kube_io::{ApiError, Client, replicas};
use tokio::task::JoinHandle;

use super::report::Reports;

/// How often a replica is asked whether it is still the one that was told.
const ASK_AGAIN: Duration = Duration::from_secs(2);
/// Reports are gathered for so long, so that many make few exchanges.
const GATHER: Duration = Duration::from_millis(20);

/// Tells all other replicas, wherever they are, until `stop`.
pub(crate) async fn tell(
    client: Client,
    namespace: String,
    reports: Arc<Reports>,
    stop: CancellationToken,
) {
    let mut told = replicas::follow(&client, &namespace);
    let mut tasks: HashMap<SocketAddr, JoinHandle<()>> = HashMap::new();
    let mut trusted = None;
    loop {
        let replicas = tokio::select! {
            () = stop.cancelled() => break,
            replicas = told.next() => replicas,
        };
        let Some(replicas) = replicas else { break };
        let wanted = |address: &SocketAddr| {
            replicas.endpoints.iter().any(|endpoint| endpoint.address == *address)
        };
        let renewed = trusted != replicas.ca_pem;
        tasks.retain(|address, task| {
            let stays = wanted(address) && !renewed;
            if !stays {
                task.abort();
            }
            stays
        });
        trusted.clone_from(&replicas.ca_pem);
        let Some(ca_pem) = replicas.ca_pem else { continue };
        for endpoint in replicas.endpoints {
            let route = Route::Direct {
                url: format!("https://{}", endpoint.address),
                server_name: replicas::server_name(&namespace),
                ca_pem: ca_pem.clone(),
            };
            tasks.entry(endpoint.address).or_insert_with(|| {
                let (client, reports) = (client.clone(), Arc::clone(&reports));
                tokio::spawn(async move { tell_one(&client, &route, &reports).await })
            });
        }
    }
    tasks.into_values().for_each(|task| task.abort());
}

async fn tell_one(client: &Client, route: &Route, reports: &Reports) {
    // It is no agent, and asks for no Node's share.
    let peer = match Controlplane::new(client, route, "") {
        Ok(peer) => peer,
        Err(error) => {
            tracing::warn!(%error, "prepare the connection to another replica");
            return;
        }
    };
    let mut news = reports.news();
    let mut told = Told::default();
    loop {
        news.borrow_and_update();
        match told.step(&peer, reports).await {
            Ok(Peer::Other) => {}
            Ok(Peer::Ourselves) => return,
            Err(error) => {
                tracing::debug!(error = %error.chain(), "tell another replica");
                told.instance = None;
            }
        }
        let news = async {
            match told.instance {
                // Nobody is there: what is new waits.
                None => std::future::pending().await,
                Some(_) => {
                    let _ = news.changed().await;
                    tokio::time::sleep(GATHER).await;
                }
            }
        };
        tokio::select! {
            () = news => {}
            () = tokio::time::sleep(ASK_AGAIN) => {}
        }
    }
}

enum Peer {
    Other,
    Ourselves,
}

/// What a replica was told.
#[derive(Default)]
struct Told {
    instance: Option<String>,
    up_to: u64,
    traffic_up_to: u64,
}

impl Told {
    async fn step(&mut self, peer: &Controlplane, reports: &Reports) -> Result<Peer, ApiError> {
        let instance = peer.instance().await?;
        if instance.as_deref() == Some(reports.instance()) {
            return Ok(Peer::Ourselves);
        }
        if instance.is_none() || instance != self.instance {
            *self = Self { instance, ..Self::default() };
        }
        let (statuses, up_to) = reports.after(self.up_to);
        for status in &statuses {
            peer.report(status).await?;
        }
        self.up_to = up_to;
        let (summaries, up_to) = reports.traffic.after(self.traffic_up_to);
        for summary in &summaries {
            peer.report_traffic(summary).await?;
        }
        self.traffic_up_to = up_to;
        Ok(Peer::Other)
    }
}
