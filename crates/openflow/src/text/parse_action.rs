//! Actions.

use std::net::IpAddr;

use super::lexer::{self, Args};
use super::parse_match;
use super::value::{number, parse};
use crate::action::{
    Action, Controller, Ct, CtZone, Learn, LearnFlags, LearnSource, LearnSpec, Nat, NatDirection,
    NatRange, PacketInReason, Resubmit,
};
use crate::error::ParseError;
use crate::field::Field;
use crate::flow::Flow;
use crate::ids::{ConjId, Cookie, GroupId, MeterId, OfPort, TableId};
use crate::mac::MacAddr;
use crate::matching::Match;
use crate::subfield::{Subfield, ones};

/// How deep actions may be nested.
const MAX_DEPTH: u8 = 8;

/// Reads a list of actions as `ovs-ofctl` writes it; `drop` is the empty one.
pub fn actions(text: &str) -> Result<Vec<Action>, ParseError> {
    let actions = nested(text, 0)?;
    crate::action::check_list(&actions)
        .map_err(|error| ParseError::new(error.to_string(), text))?;
    Ok(actions)
}

fn nested(text: &str, depth: u8) -> Result<Vec<Action>, ParseError> {
    if depth > MAX_DEPTH {
        return Err(ParseError::new("nested too deep", text));
    }
    let mut actions = Vec::new();
    let mut items = lexer::items(text)?;
    if items == ["drop"] {
        items.clear();
    }
    for item in items {
        actions.push(action(item, depth)?);
    }
    Ok(actions)
}

fn action(item: &str, depth: u8) -> Result<Action, ParseError> {
    let call = lexer::call(item)?;
    let name = call.name;
    let refuse = |reason: &str| ParseError::new(reason, item);
    Ok(match (name, call.args) {
        ("output", Args::Plain(port)) => match port.parse::<OfPort>() {
            Ok(port) => output(port),
            Err(_) => Action::OutputReg(port.parse()?),
        },
        ("CONTROLLER" | "controller", Args::None) => output(OfPort::CONTROLLER),
        ("CONTROLLER" | "controller", Args::Plain(len)) => {
            Action::OutputController { max_len: number(len)? }
        }
        ("controller", Args::Paren(args, "")) => controller(args)?,
        ("group", Args::Plain(id)) => Action::Group(GroupId(number(id)?)),
        ("meter", Args::Plain(id)) => Action::Meter(MeterId(number(id)?)),
        ("set_field", Args::Plain(args)) => set_field(args)?,
        ("load", Args::Plain(args)) => {
            let (value, dst) = arrow(args)?;
            let dst: Subfield = dst.parse()?;
            let value: u128 = number(value)?;
            if value & !ones(dst.n_bits) != 0 {
                return Err(refuse("value has too many bits"));
            }
            Action::Load { dst, value }
        }
        ("move", Args::Plain(args)) => {
            let (src, dst) = arrow(args)?;
            Action::Move { src: src.parse()?, dst: dst.parse()? }
        }
        ("push", Args::Plain(src)) => Action::StackPush(src.parse()?),
        ("pop", Args::Plain(dst)) => Action::StackPop(dst.parse()?),
        ("ct", Args::None) => Action::ct(Ct::zone(0)),
        ("ct", Args::Paren(args, "")) => Action::ct(ct(args, depth)?),
        ("ct_clear", Args::None) => Action::CtClear,
        ("resubmit", Args::Plain(port)) => {
            Action::Resubmit(Resubmit { in_port: in_port(port)?, table: None, ct: false })
        }
        ("resubmit", Args::Paren(args, "")) => resubmit(args)?,
        ("goto_table", Args::Plain(table)) => Action::GotoTable(TableId(number(table)?)),
        ("dec_ttl", Args::None) => Action::DecTtl,
        ("dec_ttl", Args::Paren(ids, "")) => {
            let ids = lexer::items(ids)?.into_iter().map(number).collect::<Result<_, _>>()?;
            Action::DecTtlIds(ids)
        }
        ("learn", Args::Paren(args, "")) => Action::learn(learn(args)?),
        ("conjunction", Args::Paren(args, "")) => conjunction(args)?,
        ("note", Args::Plain(bytes)) => Action::Note(hex_bytes(bytes)?),
        ("push_vlan", Args::Plain(kind)) => Action::PushVlan(number(kind)?),
        ("pop_vlan" | "strip_vlan", Args::None) => Action::PopVlan,
        ("set_queue", Args::Plain(queue)) => Action::SetQueue(number(queue)?),
        ("fin_timeout", Args::Paren(args, "")) => fin_timeout(args)?,
        ("check_pkt_larger", Args::Paren(len, tail)) => Action::CheckPktLarger {
            dst: tail.strip_prefix("->").ok_or_else(|| refuse("missing ->"))?.parse()?,
            pkt_len: number(len)?,
        },
        ("clone", Args::Paren(args, "")) => Action::Clone(nested(args, depth + 1)?),
        ("exit", Args::None) => Action::Exit,
        ("clear_actions", Args::None) => Action::ClearActions,
        ("write_actions", Args::Paren(args, "")) => Action::WriteActions(nested(args, depth + 1)?),
        ("write_metadata", Args::Plain(value)) => {
            let to = parse(Field::Metadata, value)?;
            let narrow = |bits: u128| u64::try_from(bits).map_err(|_| refuse("more than 64 bits"));
            Action::WriteMetadata { value: narrow(to.value)?, mask: narrow(to.mask)? }
        }
        ("mod_dl_src", Args::Plain(mac)) => ethernet(Field::EthSrc, mac)?,
        ("mod_dl_dst", Args::Plain(mac)) => ethernet(Field::EthDst, mac)?,
        ("set_tunnel" | "set_tunnel64", Args::Plain(id)) => {
            Action::set_field(Field::TunId, number::<u64>(id)?.into())
        }
        (_, Args::None) => match name.parse::<OfPort>() {
            Ok(port) => output(port),
            Err(_) => return Err(refuse("unknown action")),
        },
        _ => return Err(refuse("unknown action")),
    })
}

fn output(port: OfPort) -> Action {
    Action::Output(port).normalize()
}

fn arrow(text: &str) -> Result<(&str, &str), ParseError> {
    text.rsplit_once("->").ok_or_else(|| ParseError::new("missing ->", text))
}

fn ethernet(field: Field, text: &str) -> Result<Action, ParseError> {
    let mac: MacAddr =
        text.parse().map_err(|_| ParseError::new("not an Ethernet address", text))?;
    Ok(Action::set_field(field, mac.to_bits().into()))
}

fn set_field(args: &str) -> Result<Action, ParseError> {
    let (value, name) = arrow(args)?;
    let field = Field::by_name(name).ok_or_else(|| ParseError::new("unknown field", name))?;
    let to = parse(field, value)?;
    if to.mask == 0 {
        return Err(ParseError::new("no bit is set", args));
    }
    Ok(Action::SetField { field, to })
}

fn in_port(text: &str) -> Result<Option<OfPort>, ParseError> {
    let port: OfPort = text.parse()?;
    Ok((port != OfPort::IN_PORT).then_some(port))
}

fn resubmit(args: &str) -> Result<Action, ParseError> {
    let refuse = || ParseError::new("resubmit takes (port,table) or (port,table,ct)", args);
    let mut parts = lexer::arguments(args)?.into_iter();
    let port = parts.next().ok_or_else(refuse)?;
    let table = parts.next().unwrap_or("");
    let ct = match parts.next() {
        None => false,
        Some("ct") => true,
        Some(_) => return Err(refuse()),
    };
    if parts.next().is_some() {
        return Err(refuse());
    }
    let in_port = if port.is_empty() { None } else { in_port(port)? };
    let table: Option<u8> = if table.is_empty() { None } else { Some(number(table)?) };
    let table = table.filter(|table| *table != 0xff).map(TableId);
    Ok(Action::Resubmit(Resubmit { in_port, table, ct }))
}

fn conjunction(args: &str) -> Result<Action, ParseError> {
    let refuse = || ParseError::new("conjunction takes (id,clause/clauses)", args);
    let (id, clauses) = args.split_once(',').ok_or_else(refuse)?;
    let (clause, n_clauses) = clauses.split_once('/').ok_or_else(refuse)?;
    Ok(Action::Conjunction {
        id: ConjId(number(id.trim())?),
        clause: number(clause.trim())?,
        n_clauses: number(n_clauses.trim())?,
    })
}

fn fin_timeout(args: &str) -> Result<Action, ParseError> {
    let (mut idle, mut hard) = (0, 0);
    for item in lexer::items(args)? {
        match item.split_once('=') {
            Some(("idle_timeout", value)) => idle = number(value)?,
            Some(("hard_timeout", value)) => hard = number(value)?,
            _ => return Err(ParseError::new("unknown part of fin_timeout", item)),
        }
    }
    Ok(Action::FinTimeout { idle, hard })
}

/// Hexadecimal digits in pairs, with dots anywhere between them.
fn hex_bytes(text: &str) -> Result<Vec<u8>, ParseError> {
    let refuse = || ParseError::new("not bytes like 01.02.03", text);
    let digits = text
        .chars()
        .filter(|c| *c != '.')
        .map(|c| c.to_digit(16).and_then(|d| u8::try_from(d).ok()).ok_or_else(refuse))
        .collect::<Result<Vec<u8>, _>>()?;
    let (pairs, rest) = digits.as_chunks::<2>();
    if rest.is_empty() {
        Ok(pairs.iter().map(|[high, low]| (high << 4) | low).collect())
    } else {
        Err(refuse())
    }
}

fn controller(args: &str) -> Result<Action, ParseError> {
    let mut controller = Controller::default();
    for item in lexer::items(args)? {
        let (name, value) = item.split_once('=').unwrap_or((item, ""));
        match name {
            "reason" => controller.reason = reason(value)?,
            "max_len" => controller.max_len = number(value)?,
            "id" => controller.controller_id = number(value)?,
            "userdata" => controller.userdata = hex_bytes(value)?,
            "pause" if value.is_empty() => controller.pause = true,
            "meter_id" => controller.meter = Some(MeterId(number(value)?)),
            _ => return Err(ParseError::new("unknown part of controller", item)),
        }
    }
    Ok(Action::controller(controller).normalize())
}

fn reason(text: &str) -> Result<PacketInReason, ParseError> {
    Ok(match text {
        "no_match" => PacketInReason::NoMatch,
        "action" => PacketInReason::Action,
        "invalid_ttl" => PacketInReason::InvalidTtl,
        "action_set" => PacketInReason::ActionSet,
        "group" => PacketInReason::Group,
        "packet_out" => PacketInReason::PacketOut,
        number => PacketInReason::from_number(self::number(number)?),
    })
}

fn ct(args: &str, depth: u8) -> Result<Ct, ParseError> {
    let mut ct = Ct::zone(0);
    for item in lexer::items(args)? {
        let call = lexer::call(item)?;
        match (call.name, call.args) {
            ("commit", Args::None) => ct.commit = true,
            ("force", Args::None) => ct.force = true,
            ("table", Args::Plain(table)) => ct.table = Some(TableId(number(table)?)),
            ("zone", Args::Plain(zone)) => {
                ct.zone = match number(zone) {
                    Ok(zone) => CtZone::Imm(zone),
                    Err(_) => CtZone::Field(zone.parse()?),
                };
            }
            ("nat", Args::None) => ct.nat = Some(Nat::default()),
            ("nat", Args::Paren(args, "")) => ct.nat = Some(nat(args)?),
            ("exec", Args::Paren(args, "")) => ct.exec = nested(args, depth + 1)?,
            ("alg", Args::Plain("ftp")) => ct.alg = Some(21),
            ("alg", Args::Plain("tftp")) => ct.alg = Some(69),
            _ => return Err(ParseError::new("unknown part of ct", item)),
        }
    }
    Ok(ct)
}

fn nat(args: &str) -> Result<Nat, ParseError> {
    let mut nat = Nat::default();
    for item in lexer::items(args)? {
        let (name, value) = item.split_once('=').unwrap_or((item, ""));
        match name {
            "src" | "dst" => {
                let src = name == "src";
                nat.direction = Some(if src { NatDirection::Src } else { NatDirection::Dst });
                (nat.addresses, nat.ports) = nat_target(value)?;
            }
            "persistent" => nat.persistent = true,
            "hash" => nat.hash = true,
            "random" => nat.random = true,
            _ => return Err(ParseError::new("unknown part of nat", item)),
        }
    }
    if nat.direction.is_none() && nat != Nat::default() {
        return Err(ParseError::new("nat needs src or dst for what else it says", args));
    }
    Ok(nat)
}

type Target = (Option<NatRange<IpAddr>>, Option<NatRange<u16>>);

/// `1.2.3.4-1.2.3.9:80-90`, `[fc00::1]:80`, `fc00::1-fc00::9` or `:80`.
fn nat_target(text: &str) -> Result<Target, ParseError> {
    // A colon before the ports, and none within an address of IPv6 that has no brackets.
    let ports_at = match text.rfind(']') {
        Some(end) => text[end..].find(':').map(|at| end + at),
        None if text.matches(':').count() == 1 => text.find(':'),
        None => None,
    };
    let (addresses, ports) = match ports_at {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    };
    let address = |text: &str| {
        let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(text);
        bare.parse::<IpAddr>().map_err(|_| ParseError::new("not an IP address", text))
    };
    let addresses = match addresses.split_once('-') {
        _ if addresses.is_empty() => None,
        Some((first, last)) => {
            let (first, last) = (address(first)?, address(last)?);
            if first.is_ipv4() != last.is_ipv4() {
                return Err(ParseError::new("addresses of different families", text));
            }
            Some(NatRange { first, last: Some(last) })
        }
        None => Some(NatRange { first: address(addresses)?, last: None }),
    };
    let ports = match ports.map(|ports| ports.split_once('-').ok_or(ports)) {
        None => None,
        Some(Ok((first, last))) => {
            Some(NatRange { first: number(first)?, last: Some(number(last)?) })
        }
        Some(Err(port)) => Some(NatRange { first: number(port)?, last: None }),
    };
    Ok((addresses, ports))
}

fn learn(args: &str) -> Result<Learn, ParseError> {
    let mut learn = Learn::new(TableId(1), Flow::DEFAULT_PRIORITY);
    // Ports are those of the protocol that the learned flow matches.
    let mut context = Match::new();
    for item in lexer::items(args)? {
        let (name, value) = item.split_once('=').unwrap_or((item, ""));
        match name {
            "table" => learn.table = TableId(number(value)?),
            "priority" => learn.priority = number(value)?,
            "idle_timeout" => learn.idle_timeout = number(value)?,
            "hard_timeout" => learn.hard_timeout = number(value)?,
            "fin_idle_timeout" => learn.fin_idle_timeout = number(value)?,
            "fin_hard_timeout" => learn.fin_hard_timeout = number(value)?,
            "cookie" => learn.cookie = Cookie(number(value)?),
            "limit" => learn.limit = number(value)?,
            "send_flow_rem" => learn.flags |= LearnFlags::SEND_FLOW_REM,
            "delete_learned" => learn.flags |= LearnFlags::DELETE_LEARNED,
            "result_dst" => {
                let result: Subfield = value.parse()?;
                if result.n_bits != 1 {
                    return Err(ParseError::new("result_dst is one bit", item));
                }
                learn.result_dst = Some(result);
            }
            _ => learn.specs.push(learn_spec(item, &mut context)?),
        }
    }
    Ok(learn)
}

fn learn_spec(item: &str, context: &mut Match) -> Result<LearnSpec, ParseError> {
    let refuse = |reason: &str| ParseError::new(reason, item);
    if let Some(args) = item.strip_prefix("load:") {
        let (src, dst) = arrow(args)?;
        let dst: Subfield = dst.parse()?;
        let src = match number::<u128>(src) {
            Ok(value) if value & !ones(dst.n_bits) != 0 => {
                return Err(refuse("value has too many bits"));
            }
            Ok(value) => LearnSource::Value(value),
            Err(_) => LearnSource::Field(sized(src.parse()?, dst, item)?),
        };
        return Ok(LearnSpec::Load { dst, src });
    }
    if let Some(src) = item.strip_prefix("output:") {
        return Ok(LearnSpec::Output(src.parse()?));
    }
    let Some((name, value)) = item.split_once('=') else {
        let dst: Subfield = item.parse()?;
        return Ok(LearnSpec::Match { dst, src: LearnSource::Field(dst) });
    };
    let dst: Subfield = match parse_match::by_context(context, name) {
        Some(field) => Subfield::whole(field),
        None => name.parse()?,
    };
    let src = if dst.is_whole() {
        match parse(dst.field, value) {
            Ok(to) if to.is_exact(dst.field) => {
                context.set(dst.field, to.value);
                LearnSource::Value(to.value)
            }
            Ok(_) => return Err(refuse("learn takes no masks")),
            Err(_) => LearnSource::Field(sized(value.parse()?, dst, item)?),
        }
    } else {
        match number::<u128>(value) {
            Ok(value) if value & !ones(dst.n_bits) != 0 => {
                return Err(refuse("value has too many bits"));
            }
            Ok(value) => LearnSource::Value(value),
            Err(_) => LearnSource::Field(sized(value.parse()?, dst, item)?),
        }
    };
    Ok(LearnSpec::Match { dst, src })
}

fn sized(src: Subfield, dst: Subfield, item: &str) -> Result<Subfield, ParseError> {
    if src.n_bits == dst.n_bits {
        Ok(src)
    } else {
        Err(ParseError::new("source and destination differ in size", item))
    }
}
