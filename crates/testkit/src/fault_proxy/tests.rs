use std::io::{Read, Write};

use super::*;

/// Sends three messages through a proxy to a daemon that sends everything back. Returns what came
/// back.
fn check(protocol: Protocol, messages: [&[u8]; 3], fault: Fault) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("echo");
    let listener = UnixListener::bind(&path).unwrap();
    let echo = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut buffer = [0; 1024];
        while let Ok(n @ 1..) = stream.read(&mut buffer) {
            if stream.write_all(&buffer[..n]).is_err() {
                return;
            }
        }
    });
    let proxy = FaultProxy::start(protocol, &path);
    proxy.arm(fault);
    let mut client = UnixStream::connect(proxy.socket()).unwrap();
    client.write_all(&messages.concat()).unwrap();
    let mut back = Vec::new();
    client.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    // The connection stays until nothing comes any more: the proxy ends both ways when the program
    // ends one.
    let _ = client.read_to_end(&mut back);
    assert!(proxy.has_struck());
    drop(proxy);
    echo.join().unwrap();
    back
}

const ONE: &[u8] = &[6, 2, 0, 8, 0, 0, 0, 1];
const TWO: &[u8] = &[6, 33, 0, 16, 0, 0, 0, 2, 0, 0, 0, 1, 0, 4, 0, 0];

#[test]
fn one_message_is_spoilt_and_the_others_are_not() {
    let three = [6, 20, 0, 8, 0, 0, 0, 3];
    for (kind, want) in [
        (FaultKind::CutBefore, ONE.to_vec()),
        (FaultKind::Truncate, [ONE, &TWO[..8]].concat()),
        (FaultKind::CutAfter, [ONE, TWO].concat()),
        (FaultKind::Swallow, [ONE, &three].concat()),
        (FaultKind::Delay(Duration::from_millis(20)), [ONE, TWO, &three].concat()),
    ] {
        let named = Which::NthNamed("33.4".to_owned(), 0);
        for which in [Which::Nth(1), named] {
            let fault = Fault { direction: Direction::ToServer, which, kind };
            let text = fault.to_string();
            let (seen, server) = collect(Protocol::OpenFlow, &[ONE, TWO, &three].concat(), fault);
            assert_eq!(server, want, "{text}");
            assert_eq!(seen[1].name, "33.4");
            assert_eq!(seen[1].fault, Some(kind), "{text}");
        }
    }
}

/// What a daemon gets of a stream sent through a proxy.
fn collect(protocol: Protocol, stream: &[u8], fault: Fault) -> (Vec<Seen>, Vec<u8>) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sink");
    let listener = UnixListener::bind(&path).unwrap();
    let sink = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        all
    });
    let proxy = FaultProxy::start(protocol, &path);
    proxy.arm(fault);
    let mut client = UnixStream::connect(proxy.socket()).unwrap();
    // In pieces that are no messages. The proxy may have ended the connection before the last.
    for piece in stream.chunks(3) {
        let _ = client.write_all(piece);
    }
    drop(client);
    let all = sink.join().unwrap();
    (proxy.seen(), all)
}

#[test]
fn json_is_cut_at_objects() {
    let messages: [&[u8]; 3] = [
        br#"{"id":1,"method":"transact","params":["a}\"{"]}"#,
        br#" {"id":1,"result":[{}],"error":null}"#,
        br#"{"id":null,"method":"update2","params":[]}"#,
    ];
    let fault = Fault::nth(Direction::ToServer, 1, FaultKind::Swallow);
    let (seen, all) = collect(Protocol::Ovsdb, &messages.concat(), fault);
    assert_eq!(all, [messages[0], messages[2]].concat());
    let names: Vec<&str> = seen.iter().map(|seen| seen.name.as_str()).collect();
    assert_eq!(names, ["transact", "reply", "update2"]);
}

#[test]
fn answers_are_spoilt_too() {
    let fault = Fault::nth(Direction::ToClient, 0, FaultKind::CutBefore);
    assert_eq!(check(Protocol::OpenFlow, [ONE, TWO, ONE], fault), []);
}
