//! A switch of its own for a test, and a connection to it.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use openflow::message::{FlowDump, FlowFilter, Hello, MultipartBody, MultipartRequest};
use openflow::{Flow, Framer, Message, Xid};
use testkit::netns::in_netns;
use testkit::ovs::Ovs;

/// A connection to the switch's management socket.
pub struct Connection {
    pub stream: UnixStream,
    framer: Framer,
    xid: u32,
}

impl Connection {
    pub fn open(ovs: &Ovs) -> Self {
        let stream = UnixStream::connect(ovs.mgmt("br-test")).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut connection = Self { stream, framer: Framer::new(), xid: 0 };
        connection.send(&Message::Hello(Hello::openflow15()));
        let (_, hello) = connection.receive();
        assert!(matches!(hello, Message::Hello(hello) if hello.speaks_openflow15()));
        connection
    }

    pub fn send(&mut self, message: &Message) -> Xid {
        self.xid += 1;
        self.stream.write_all(&message.encode(Xid(self.xid)).unwrap()).unwrap();
        Xid(self.xid)
    }

    /// The next message that is no echo request.
    pub fn receive(&mut self) -> (Xid, Message) {
        loop {
            while let Some(bytes) = self.framer.next_message().unwrap() {
                match Message::decode(&bytes).unwrap() {
                    (xid, Message::EchoRequest(data)) => {
                        let reply = Message::EchoReply(data).encode(xid).unwrap();
                        self.stream.write_all(&reply).unwrap();
                    }
                    message => return message,
                }
            }
            let mut bytes = [0; 65536];
            let n = self.stream.read(&mut bytes).unwrap();
            assert_ne!(n, 0, "the switch closed the connection");
            self.framer.push(&bytes[..n]);
        }
    }

    /// The next message, if it is one that can be read.
    pub fn try_receive(&mut self) -> Option<Message> {
        loop {
            match self.framer.next_message() {
                Ok(Some(bytes)) => return Message::decode(&bytes).ok().map(|(_, message)| message),
                Ok(None) => {}
                Err(_) => return None,
            }
            let mut bytes = [0; 65536];
            match self.stream.read(&mut bytes) {
                Ok(n @ 1..) => self.framer.push(&bytes[..n]),
                Ok(0) | Err(_) => return None,
            }
        }
    }

    /// Everything the switch says until it has done all that was sent.
    pub fn barrier(&mut self) -> Vec<Message> {
        let barrier = self.send(&Message::BarrierRequest);
        let mut seen = Vec::new();
        loop {
            match self.receive() {
                (xid, Message::BarrierReply) if xid == barrier => return seen,
                (_, message) => seen.push(message),
            }
        }
    }

    #[track_caller]
    pub fn quiet_barrier(&mut self) {
        let seen = self.barrier();
        assert!(seen.is_empty(), "{seen:?}");
    }

    pub fn list(&mut self, request: MultipartRequest) -> Vec<MultipartBody> {
        let request = self.send(&Message::MultipartRequest(request));
        let mut parts = Vec::new();
        loop {
            let (xid, message) = self.receive();
            assert_eq!(xid, request);
            let Message::MultipartReply(reply) = message else { panic!("{message:?}") };
            parts.push(reply.body);
            if !reply.more {
                return parts;
            }
        }
    }

    pub fn flows(&mut self) -> Vec<Flow> {
        let mut flows = Vec::new();
        for part in self.list(MultipartRequest::Flows(FlowFilter::all())) {
            let MultipartBody::Flows(FlowDump { flows: some, undecoded }) = part else {
                panic!("{part:?}")
            };
            assert!(undecoded.is_empty(), "{undecoded:?}");
            flows.extend(some.into_iter().map(|stats| stats.flow));
        }
        flows
    }
}

/// Runs `body` with a switch that has one bridge, `br-test`.
pub fn with_switch(body: impl FnOnce(&Ovs) + Send) {
    in_netns(|| {
        let ovs = Ovs::start(None);
        ovs.vsctl(&[
            "add-br",
            "br-test",
            "--",
            "set",
            "bridge",
            "br-test",
            "datapath_type=netdev",
            "fail_mode=secure",
            "protocols=OpenFlow10,OpenFlow15",
        ]);
        testkit::wait_until(Duration::from_secs(20), "the management socket", || {
            ovs.mgmt("br-test").exists()
        });
        body(&ovs);
    });
}
