//! Waits for a link to come to a state, woken by the kernel's notifications.

use std::time::{Duration, Instant};

use super::{Link, LinkError, find_by_name};
use crate::monitor::{Monitor, Topics};
use crate::netlink::Rtnl;

/// Waits until the link exists, is up and has carrier.
pub fn wait_up(rtnl: &Rtnl, name: &str, patience: Duration) -> Result<Link, LinkError> {
    wait_for(rtnl, name, patience, |link| link.up && link.carrier)
}

/// Waits until the link exists and `ready` holds, such as the internal port that OVS is about to
/// make.
pub fn wait_for(
    rtnl: &Rtnl,
    name: &str,
    patience: Duration,
    ready: impl Fn(&Link) -> bool,
) -> Result<Link, LinkError> {
    let deadline = Instant::now() + patience;
    // Subscribed before the first look, so that no change falls between.
    let monitor = Monitor::open_in(rtnl.netns(), Topics::LINKS)
        .map_err(|source| LinkError::Refused { action: "watch", link: name.to_owned(), source })?;
    loop {
        let link = find_by_name(rtnl, name)?;
        if let Some(link) = link.as_ref().filter(|link| ready(link)) {
            return Ok(link.clone());
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(LinkError::Deadline {
                link: name.to_owned(),
                seconds: patience.as_secs_f64(),
                state: link.map_or("not there".into(), |link| {
                    format!("up={} carrier={} mtu={}", link.up, link.carrier, link.mtu)
                }),
            });
        }
        monitor.wait(left).map_err(|source| LinkError::Refused {
            action: "watch",
            link: name.to_owned(),
            source,
        })?;
    }
}
