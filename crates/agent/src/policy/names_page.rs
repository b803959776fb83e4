//! Shows which addresses of names are known, to `antctl get fqdncache`.

use std::sync::Arc;

use antrea_runtime::Page;
use jiff::Timestamp;
use serde::Serialize;
use tokio::sync::{mpsc, oneshot};

use super::known::KeptName;

/// A question for all names that are known.
pub(crate) type AskNames = oneshot::Sender<Vec<KeptName>>;

/// An address of a name, as it is shown.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown {
    fqdn_name: String,
    ip_address: String,
    expiration_time: String,
}

/// The page. It waits until policies are followed; where nobody follows them no name is known.
pub(crate) fn names_page(ask_tx: mpsc::Sender<AskNames>) -> Page {
    Arc::new(move || {
        let ask_tx = ask_tx.clone();
        Box::pin(async move {
            let (reply_tx, reply_rx) = oneshot::channel();
            let names = match ask_tx.send(reply_tx).await {
                Ok(()) => reply_rx.await.unwrap_or_default(),
                Err(_) => Vec::new(),
            };
            json(names)
        })
    })
}

fn json(mut names: Vec<KeptName>) -> String {
    names.sort_by(|a, b| (&a.name, a.ip).cmp(&(&b.name, b.ip)));
    let shown = names.into_iter().map(|kept| Shown {
        fqdn_name: kept.name,
        ip_address: kept.ip.to_string(),
        expiration_time: i64::try_from(kept.until)
            .ok()
            .and_then(|second| Timestamp::from_second(second).ok())
            .map(|time| time.to_string())
            .unwrap_or_default(),
    });
    let shown: Vec<Shown> = shown.collect();
    serde_json::to_string(&shown).expect("text becomes JSON")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn names_are_shown_in_order_with_the_end_of_their_time() {
        let (ask_tx, mut ask_rx) = mpsc::channel::<AskNames>(1);
        let page = names_page(ask_tx);
        let answer = tokio::spawn(page());
        let kept = |name: &str, ip: &str, until| KeptName {
            name: name.to_owned(),
            ip: ip.parse().unwrap(),
            until,
        };
        let names = vec![kept("b.test", "2001:db8::1", u64::MAX), kept("a.test", "10.0.0.1", 60)];
        ask_rx.recv().await.unwrap().send(names).unwrap();
        let want = r#"[{"fqdnName":"a.test","ipAddress":"10.0.0.1","expirationTime":"1970-01-01T00:01:00Z"},{"fqdnName":"b.test","ipAddress":"2001:db8::1","expirationTime":""}]"#;
        assert_eq!(answer.await.unwrap(), want);
        drop(ask_rx);
        assert_eq!(page().await, "[]");
    }
}
