//! Reads all that a bridge holds over a connection of its own, in a few milliseconds.

use std::collections::VecDeque;
use std::path::Path;

use openflow::message::{FlowFilter, Hello, MultipartBody, MultipartRequest};
use openflow::{Framer, GroupId, Message, MeterId, Xid};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

/// All that a bridge holds, as sorted text.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct Held {
    pub(crate) flows: Vec<String>,
    pub(crate) groups: Vec<String>,
    pub(crate) meters: Vec<String>,
}

impl Held {
    pub(crate) fn sorted(mut self) -> Self {
        self.flows.sort();
        self.groups.sort();
        self.meters.sort();
        self
    }

    /// What is in one and not in the other.
    pub(crate) fn difference(&self, want: &Self) -> String {
        let mut lines = Vec::new();
        for (have, want) in
            [(&self.flows, &want.flows), (&self.groups, &want.groups), (&self.meters, &want.meters)]
        {
            lines.extend(have.iter().filter(|line| !want.contains(line)).map(|l| format!("+ {l}")));
            lines.extend(want.iter().filter(|line| !have.contains(line)).map(|l| format!("- {l}")));
        }
        lines.join("\n")
    }
}

/// Reads flows, groups and meters.
pub(crate) async fn held(mgmt: &Path) -> Held {
    let mut stream = UnixStream::connect(mgmt).await.unwrap();
    let requests = [
        MultipartRequest::Flows(FlowFilter::all()),
        MultipartRequest::Groups(GroupId::ALL),
        MultipartRequest::Meters(MeterId::ALL),
    ];
    let mut bytes = Message::Hello(Hello::openflow15()).encode(Xid(1)).unwrap().to_vec();
    for (request, xid) in requests.into_iter().zip(10..) {
        bytes.extend_from_slice(&Message::MultipartRequest(request).encode(Xid(xid)).unwrap());
    }
    stream.write_all(&bytes).await.unwrap();
    let mut all = Held::default();
    let (mut framer, mut messages) = (Framer::new(), VecDeque::new());
    loop {
        while let Some(message) = framer.next_message().unwrap() {
            messages.push_back(message);
        }
        let Some(message) = messages.pop_front() else {
            let n = stream.read_buf(framer.buffer_mut()).await.unwrap();
            assert!(n > 0, "the switch closed the connection");
            continue;
        };
        let (xid, message) = Message::decode(&message).unwrap();
        let Message::MultipartReply(part) = message else { continue };
        match part.body {
            MultipartBody::Flows(part) => {
                assert!(part.undecoded.is_empty());
                all.flows.extend(part.flows.iter().map(|stats| stats.flow.to_string()));
            }
            MultipartBody::Groups(groups) => {
                let groups = groups.known.into_iter();
                all.groups.extend(groups.map(|group| group.normalize().to_string()));
            }
            MultipartBody::Meters(meters) => {
                all.meters.extend(meters.known.iter().map(ToString::to_string));
            }
            other => panic!("{other:?}"),
        }
        if xid == Xid(12) && !part.more {
            return all.sorted();
        }
    }
}
