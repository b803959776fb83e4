//! A connection to a real ovsdb-server.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use ovsdb::{
    DATABASE, Established, Id, Incoming, Monitor, OpResult, Operation, Splitter, TransactError,
    echo_reply, parse_results, request,
};
use serde_json::{Value as Json, json};
use testkit::ovsdb::OvsdbServer;

pub struct Client {
    stream: UnixStream,
    splitter: Splitter,
    last_id: u64,
    /// What the server told by itself.
    told: VecDeque<(String, Json)>,
    /// How many reads it took to have everything so far.
    pub n_reads: usize,
}

impl Client {
    pub fn connect(server: &OvsdbServer) -> Self {
        let stream = UnixStream::connect(server.socket()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Self { stream, splitter: Splitter::new(), last_id: 0, told: VecDeque::new(), n_reads: 0 }
    }

    fn next(&mut self) -> Incoming {
        loop {
            if let Some(json) = self.splitter.next_message().unwrap() {
                match Incoming::from_json(json).unwrap() {
                    Incoming::Request { id, method, params } if method == "echo" => {
                        let reply = echo_reply(&id, params).to_string();
                        self.stream.write_all(reply.as_bytes()).unwrap();
                    }
                    incoming => return incoming,
                }
                continue;
            }
            let mut bytes = [0; 4096];
            let n = self.stream.read(&mut bytes).unwrap();
            assert_ne!(n, 0, "the server closed the connection");
            self.n_reads += 1;
            self.splitter.push(&bytes[..n]);
        }
    }

    pub fn send(&mut self, method: &str, params: &Json) -> Id {
        self.last_id += 1;
        let id = Id(self.last_id);
        self.stream.write_all(request(id, method, params).to_string().as_bytes()).unwrap();
        id
    }

    /// The answer to a request that was sent; what else comes is kept.
    pub fn answer(&mut self, want: Id) -> Result<Json, Json> {
        loop {
            match self.next() {
                Incoming::Response { id, result } if id == want => return result,
                Incoming::Notification { method, params } => {
                    self.told.push_back((method, params));
                }
                other => panic!("{other:?}"),
            }
        }
    }

    pub fn call(&mut self, method: &str, params: &Json) -> Result<Json, Json> {
        let id = self.send(method, params);
        self.answer(id)
    }

    pub fn transact(&mut self, operations: &[Operation]) -> Result<Vec<OpResult>, TransactError> {
        let mut params = vec![json!(DATABASE)];
        params.extend(operations.iter().map(Operation::to_json));
        let reply = self.call("transact", &Json::from(params)).unwrap();
        parse_results(operations.len(), &reply)
    }

    /// What the server tells next by itself.
    pub fn told(&mut self) -> (String, Json) {
        if let Some(told) = self.told.pop_front() {
            return told;
        }
        match self.next() {
            Incoming::Notification { method, params } => (method, params),
            other => panic!("{other:?}"),
        }
    }

    /// Starts or resumes a monitor, in the best way the server knows.
    pub fn establish(&mut self, monitor: &mut Monitor) -> Established {
        loop {
            let (method, params) = monitor.request();
            let result = self.call(method, &params);
            match monitor.reply(result).unwrap() {
                Established::AskAgain => {}
                established => return established,
            }
        }
    }

    /// Takes in notifications until the rows are as they should be.
    pub fn follow(&mut self, monitor: &mut Monitor, done: impl Fn(&Monitor) -> bool) {
        while !done(monitor) {
            let (method, params) = self.told();
            monitor.notification(&method, &params).unwrap();
        }
    }
}
