//! What has to happen before a closed port is opened. Pure.
//!
//! A new Pod's port is opened when its policies are known; that of a Pod which was there before, once
//! the flows of policies have followed to its number. A port may be closed for the one reason and
//! then for the other: then both have to be over.

use std::collections::HashMap;

use cni_api::Attachment;

use super::gate::Ticket;

/// Ports of new Pods whose policies are not known yet, each with its last closing.
#[derive(Debug, Default)]
pub(super) struct Closings(HashMap<Attachment, Ticket>);

impl Closings {
    /// A new Pod's port is closed.
    pub(super) fn made(&mut self, ticket: Ticket) {
        self.0.insert(ticket.attachment.clone(), ticket);
    }

    /// The port of a Pod that was there before is closed. Returns what to open once flows have
    /// followed; nothing for a Pod whose policies are not known yet, which will be for its new
    /// number too.
    pub(super) fn moved(&mut self, ticket: Ticket) -> Option<Ticket> {
        match self.0.get_mut(&ticket.attachment) {
            Some(closing) => {
                *closing = ticket;
                None
            }
            None => Some(ticket),
        }
    }

    /// The Pod's policies are known. Returns what to open once their flows are there.
    pub(super) fn covered(&mut self, attachment: &Attachment) -> Option<Ticket> {
        self.0.remove(attachment)
    }

    /// It was opened because it was closed for too long.
    pub(super) fn overdue(&mut self, ticket: &Ticket) {
        if self.0.get(&ticket.attachment) == Some(ticket) {
            self.0.remove(&ticket.attachment);
        }
    }

    /// The Pod is gone.
    pub(super) fn removed(&mut self, attachment: &Attachment) {
        self.0.remove(attachment);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_port_is_opened_by_its_last_closing() {
        let pod = Attachment::new("c1", "eth0").unwrap();
        let ticket = |number| Ticket { attachment: pod.clone(), number };
        let mut closings = Closings::default();
        assert_eq!(closings.moved(ticket(1)), Some(ticket(1)), "a Pod of before");
        closings.made(ticket(2));
        assert_eq!(closings.moved(ticket(3)), None, "its policies are not known");
        closings.overdue(&ticket(2));
        assert_eq!(closings.covered(&pod), Some(ticket(3)));
        assert_eq!(closings.covered(&pod), None);
        assert_eq!(closings.moved(ticket(4)), Some(ticket(4)), "they are known");
        closings.made(ticket(5));
        closings.overdue(&ticket(5));
        assert_eq!(closings.moved(ticket(6)), Some(ticket(6)), "nobody waits for them any more");
        closings.made(ticket(7));
        closings.removed(&pod);
        assert_eq!(closings.covered(&pod), None);
    }
}
