//! How long encoding, decoding and reading text take: `cargo run --release -p openflow --example
//! encode_speed`.

use std::io::Write;
use std::net::Ipv4Addr;
use std::time::Instant;

use openflow::message::{BundleFlags, BundleId, FlowModCommand, Message, encode_bundled_flow};
use openflow::{Action, ConjId, Cookie, CtState, Flow, Framer, Match, Subfield, TableId, Xid};

const N: u32 = 100_000;

fn flow(n: u32) -> Flow {
    let matching = Match::new()
        .ct_state(CtState::NEW | CtState::TRK, CtState::empty())
        .ip()
        .nw_src(Ipv4Addr::from(0x0a00_0000 + n))
        .reg(Subfield::reg(1, 0, 31), n.into());
    Flow::new(TableId(40), 200, matching)
        .cookie(Cookie(0xa17e_0002_0000_0001))
        .action(Action::conjunction(ConjId(n), 1, 2))
}

fn main() {
    let flows: Vec<Flow> = (0..N).map(flow).collect();
    let mut out = std::io::stdout();
    let mut report = |what: &str, since: Instant| {
        // A closed standard output ends the example early; nothing else depends on it.
        let _ = writeln!(out, "{what}: {:.1} ms", since.elapsed().as_secs_f64() * 1e3);
    };
    let flags = BundleFlags::ATOMIC | BundleFlags::ORDERED;

    let since = Instant::now();
    let mut bytes = Vec::new();
    for (xid, flow) in (0..).zip(&flows) {
        let add = FlowModCommand::Add;
        encode_bundled_flow(&mut bytes, Xid(xid), BundleId(1), flags, add, flow)
            .expect("a short flow can be encoded");
    }
    report("encode 100,000 flow-mods in a bundle", since);

    let since = Instant::now();
    let mut framer = Framer::new();
    framer.push(&bytes);
    let mut n = 0;
    while let Ok(Some(message)) = framer.next_message() {
        Message::decode(&message).expect("our own bytes can be decoded");
        n += 1;
    }
    assert_eq!(n, N);
    report("decode them", since);

    let since = Instant::now();
    let texts: Vec<String> = flows.iter().map(ToString::to_string).collect();
    report("print them", since);

    let since = Instant::now();
    for text in &texts {
        text.parse::<Flow>().expect("our own text can be read");
    }
    report("read their text", since);
}
