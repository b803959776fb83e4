//! Which of several Services that want the same address and port gets it.
//!
//! A cluster address belongs to its Service, whoever else names it; after it come addresses of load
//! balancers, then external ones; among equals the first by name. So the outcome does not depend on
//! the order in which objects came.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use apis::service::ServiceProtocol;
use pipeline::service::FrontendAddress;

use crate::proxy::PortKey;

/// An address and port at which a Service is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Front {
    pub(crate) address: FrontendAddress,
    pub(crate) protocol: ServiceProtocol,
    pub(crate) port: u16,
}

/// How good a claim is; the least wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    Cluster,
    NodePort,
    LoadBalancer,
    External,
}

/// A claim to a front.
pub(crate) type Claim = (Rank, Arc<PortKey>);

/// Who wants what. Nearly every front has one claim.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    of: HashMap<Front, BTreeSet<Claim>>,
}

impl Claims {
    /// Adds a claim; returns who has to think again.
    pub(crate) fn add(&mut self, front: Front, rank: Rank, port: &Arc<PortKey>) -> Option<Claim> {
        let claims = self.of.entry(front).or_default();
        let before = claims.first().cloned();
        claims.insert((rank, port.clone()));
        before.filter(|before| claims.first() != Some(before))
    }

    /// Removes a claim; returns who has to think again.
    pub(crate) fn remove(
        &mut self,
        front: Front,
        rank: Rank,
        port: &Arc<PortKey>,
    ) -> Option<Claim> {
        let claims = self.of.get_mut(&front)?;
        let claim = (rank, port.clone());
        let won = claims.first() == Some(&claim);
        claims.remove(&claim);
        let next = claims.first().cloned();
        if claims.is_empty() {
            self.of.remove(&front);
        }
        next.filter(|_| won)
    }

    /// Whether the claim is the best one.
    pub(crate) fn wins(&self, front: Front, rank: Rank, port: &Arc<PortKey>) -> bool {
        let best = self.of.get(&front).and_then(BTreeSet::first);
        best.is_some_and(|(best_rank, best_port)| *best_rank == rank && best_port == port)
    }

    /// How many fronts are claimed.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.of.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_claim_wins_in_every_order() {
        let port = |name: &str| Arc::new(PortKey::new("x", name, ""));
        let front = Front {
            address: FrontendAddress::Ip("10.96.0.1".parse().unwrap()),
            protocol: ServiceProtocol::Tcp,
            port: 80,
        };
        // From the best to the worst.
        let claims = [
            (Rank::Cluster, port("z")),
            (Rank::LoadBalancer, port("y")),
            (Rank::External, port("a")),
            (Rank::External, port("b")),
        ];
        for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2], [2, 0, 3, 1]] {
            let mut all = Claims::default();
            let mut best = usize::MAX;
            for n in order {
                let (rank, port) = &claims[n];
                let again = all.add(front, *rank, port);
                assert_eq!(
                    again,
                    (n < best && best < 4).then(|| claims[best].clone()),
                    "{order:?}"
                );
                best = best.min(n);
                assert!(all.wins(front, claims[best].0, &claims[best].1), "{order:?}");
            }
            let again = all.remove(front, claims[1].0, &claims[1].1);
            assert_eq!(again, None, "it had not won");
            let again = all.remove(front, claims[0].0, &claims[0].1);
            assert_eq!(again.as_ref(), Some(&claims[2]));
            for n in [2, 3] {
                all.remove(front, claims[n].0, &claims[n].1);
            }
            assert_eq!(all.len(), 0);
        }
    }
}
