//! Actions and subfields.

use std::fmt::{self, Display as _};
use std::net::IpAddr;

use super::value::{Value, hex};
use crate::action::{
    Action, Controller, Ct, CtZone, Learn, LearnFlags, LearnSource, LearnSpec, Nat, NatDirection,
    NatRange, PacketInReason,
};
use crate::field::Field;
use crate::flow::Flow;
use crate::ids::OfPort;
use crate::matching::Masked;
use crate::subfield::{Subfield, ones};

/// A list of actions as `ovs-ofctl` writes it; `drop` when empty.
#[derive(Clone, Copy, Debug)]
pub struct ActionList<'a>(pub &'a [Action]);

impl fmt::Display for ActionList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { f.write_str("drop") } else { list(f, self.0) }
    }
}

fn list(f: &mut fmt::Formatter<'_>, actions: &[Action]) -> fmt::Result {
    for (n, action) in actions.iter().enumerate() {
        if n > 0 {
            f.write_str(",")?;
        }
        action.fmt(f)?;
    }
    Ok(())
}

impl fmt::Display for Subfield {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.field.info().nxm_name)?;
        if self.is_whole() {
            f.write_str("[]")
        } else if self.n_bits == 1 {
            write!(f, "[{}]", self.offset)
        } else {
            write!(f, "[{}..{}]", self.offset, self.offset + self.n_bits.saturating_sub(1))
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Output(OfPort::CONTROLLER) => f.write_str("CONTROLLER:65535"),
            Self::Output(port) if port.0 < 0xffff_ff00 => write!(f, "output:{port}"),
            Self::Output(port) => port.fmt(f),
            Self::OutputReg(src) => write!(f, "output:{src}"),
            Self::OutputController { max_len } => write!(f, "CONTROLLER:{max_len}"),
            Self::Controller(controller) => self::controller(f, controller),
            Self::SetField { field, to } => set_field(f, *field, *to),
            Self::Load { dst, value } => {
                f.write_str("load:")?;
                hex(f, *value)?;
                write!(f, "->{dst}")
            }
            Self::Move { src, dst } => write!(f, "move:{src}->{dst}"),
            Self::StackPush(src) => write!(f, "push:{src}"),
            Self::StackPop(dst) => write!(f, "pop:{dst}"),
            Self::Ct(ct) => self::ct(f, ct),
            Self::CtClear => f.write_str("ct_clear"),
            Self::Resubmit(resubmit) => match (resubmit.in_port, resubmit.table) {
                (Some(port), None) if !resubmit.ct => write!(f, "resubmit:{port}"),
                (port, table) => {
                    f.write_str("resubmit(")?;
                    if let Some(port) = port {
                        port.fmt(f)?;
                    }
                    f.write_str(",")?;
                    if let Some(table) = table {
                        table.fmt(f)?;
                    }
                    f.write_str(if resubmit.ct { ",ct)" } else { ")" })
                }
            },
            Self::DecTtl => f.write_str("dec_ttl"),
            Self::DecTtlIds(ids) => {
                f.write_str("dec_ttl(")?;
                for (n, id) in ids.iter().enumerate() {
                    write!(f, "{}{id}", if n > 0 { "," } else { "" })?;
                }
                f.write_str(")")
            }
            Self::Learn(learn) => self::learn(f, learn),
            Self::Conjunction { id, clause, n_clauses } => {
                write!(f, "conjunction({id},{clause}/{n_clauses})")
            }
            Self::Group(group) => write!(f, "group:{group}"),
            Self::Meter(meter) => write!(f, "meter:{}", meter.0),
            Self::Note(bytes) => {
                f.write_str("note:")?;
                dotted(f, bytes)
            }
            Self::PushVlan(kind) => write!(f, "push_vlan:{kind:#06x}"),
            Self::PopVlan => f.write_str("pop_vlan"),
            Self::SetQueue(queue) => write!(f, "set_queue:{queue}"),
            Self::FinTimeout { idle, hard } => {
                let mut args = Args::open(f, "fin_timeout(")?;
                args.nonzero("idle_timeout", *idle)?;
                args.nonzero("hard_timeout", *hard)?;
                args.close()
            }
            Self::CheckPktLarger { dst, pkt_len } => {
                write!(f, "check_pkt_larger({pkt_len})->{dst}")
            }
            Self::Clone(actions) => {
                f.write_str("clone(")?;
                list(f, actions)?;
                f.write_str(")")
            }
            Self::Exit => f.write_str("exit"),
            Self::ClearActions => f.write_str("clear_actions"),
            Self::WriteActions(actions) => write!(f, "write_actions({})", ActionList(actions)),
            Self::WriteMetadata { value, mask } => {
                write!(f, "write_metadata:{value:#x}")?;
                if *mask != u64::MAX {
                    write!(f, "/{mask:#x}")?;
                }
                Ok(())
            }
            Self::GotoTable(table) => write!(f, "goto_table:{table}"),
        }
    }
}

fn set_field(f: &mut fmt::Formatter<'_>, field: Field, to: Masked) -> fmt::Result {
    let info = field.info();
    f.write_str("set_field:")?;
    match field {
        // Not with a sign, as in a match.
        Field::TunFlags => f.write_str(if to.value == 0 { "0" } else { "oam" })?,
        _ => Value { field, to }.fmt(f)?,
    }
    write!(f, "->{}", info.name)
}

/// Arguments in parentheses, with commas between them.
struct Args<'a, 'f> {
    f: &'a mut fmt::Formatter<'f>,
    first: bool,
}

impl<'a, 'f> Args<'a, 'f> {
    fn open(f: &'a mut fmt::Formatter<'f>, name: &str) -> Result<Self, fmt::Error> {
        f.write_str(name)?;
        Ok(Self { f, first: true })
    }

    fn arg(&mut self, arg: impl fmt::Display) -> fmt::Result {
        if !self.first {
            self.f.write_str(",")?;
        }
        self.first = false;
        arg.fmt(self.f)
    }

    fn nonzero(&mut self, name: &str, value: u16) -> fmt::Result {
        if value == 0 { Ok(()) } else { self.arg(format_args!("{name}={value}")) }
    }

    fn close(self) -> fmt::Result {
        self.f.write_str(")")
    }
}

fn dotted(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    for (n, byte) in bytes.iter().enumerate() {
        write!(f, "{}{byte:02x}", if n > 0 { "." } else { "" })?;
    }
    Ok(())
}

struct Dotted<'a>(&'a [u8]);

impl fmt::Display for Dotted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        dotted(f, self.0)
    }
}

impl fmt::Display for PacketInReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoMatch => f.write_str("no_match"),
            Self::Action => f.write_str("action"),
            Self::InvalidTtl => f.write_str("invalid_ttl"),
            Self::ActionSet => f.write_str("action_set"),
            Self::Group => f.write_str("group"),
            Self::PacketOut => f.write_str("packet_out"),
            Self::Other(number) => number.fmt(f),
        }
    }
}

fn controller(f: &mut fmt::Formatter<'_>, controller: &Controller) -> fmt::Result {
    if let Some(max_len) = controller.plain() {
        return write!(f, "CONTROLLER:{max_len}");
    }
    let mut args = Args::open(f, "controller(")?;
    if controller.reason != PacketInReason::Action {
        args.arg(format_args!("reason={}", controller.reason))?;
    }
    if controller.max_len != u16::MAX {
        args.arg(format_args!("max_len={}", controller.max_len))?;
    }
    args.nonzero("id", controller.controller_id)?;
    if !controller.userdata.is_empty() {
        args.arg(format_args!("userdata={}", Dotted(&controller.userdata)))?;
    }
    if controller.pause {
        args.arg("pause")?;
    }
    if let Some(meter) = controller.meter {
        args.arg(format_args!("meter_id={}", meter.0))?;
    }
    args.close()
}

fn ct(f: &mut fmt::Formatter<'_>, ct: &Ct) -> fmt::Result {
    let mut args = Args::open(f, "ct(")?;
    if ct.commit {
        args.arg("commit")?;
    }
    if ct.force {
        args.arg("force")?;
    }
    if let Some(table) = ct.table {
        args.arg(format_args!("table={table}"))?;
    }
    match ct.zone {
        CtZone::Imm(0) => {}
        CtZone::Imm(zone) => args.arg(format_args!("zone={zone}"))?,
        CtZone::Field(field) => args.arg(format_args!("zone={field}"))?,
    }
    if let Some(nat) = &ct.nat {
        args.arg(nat)?;
    }
    if !ct.exec.is_empty() {
        args.arg(format_args!("exec({})", ActionList(&ct.exec)))?;
    }
    match ct.alg {
        None => {}
        Some(21) => args.arg("alg=ftp")?,
        Some(69) => args.arg("alg=tftp")?,
        Some(port) => args.arg(format_args!("alg={port}"))?,
    }
    args.close()
}

impl fmt::Display for Nat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(direction) = self.direction else { return f.write_str("nat") };
        f.write_str("nat(")?;
        f.write_str(match direction {
            NatDirection::Src => "src",
            NatDirection::Dst => "dst",
        })?;
        if let Some(NatRange { first, last }) = self.addresses {
            f.write_str("=")?;
            // With ports, addresses of IPv6 need brackets.
            let bracket = self.ports.is_some() && first.is_ipv6();
            address(f, first, bracket)?;
            if let Some(last) = last {
                f.write_str("-")?;
                address(f, last, bracket)?;
            }
        } else if self.ports.is_some() {
            f.write_str("=")?;
        }
        if let Some(NatRange { first, last }) = self.ports {
            write!(f, ":{first}")?;
            if let Some(last) = last {
                write!(f, "-{last}")?;
            }
        }
        if self.persistent {
            f.write_str(",persistent")?;
        }
        if self.hash {
            f.write_str(",hash")?;
        }
        if self.random {
            f.write_str(",random")?;
        }
        f.write_str(")")
    }
}

fn address(f: &mut fmt::Formatter<'_>, address: IpAddr, bracket: bool) -> fmt::Result {
    if bracket { write!(f, "[{address}]") } else { address.fmt(f) }
}

fn learn(f: &mut fmt::Formatter<'_>, learn: &Learn) -> fmt::Result {
    let mut args = Args::open(f, "learn(")?;
    args.arg(format_args!("table={}", learn.table))?;
    args.nonzero("idle_timeout", learn.idle_timeout)?;
    args.nonzero("hard_timeout", learn.hard_timeout)?;
    args.nonzero("fin_idle_timeout", learn.fin_idle_timeout)?;
    args.nonzero("fin_hard_timeout", learn.fin_hard_timeout)?;
    if learn.priority != Flow::DEFAULT_PRIORITY {
        args.arg(format_args!("priority={}", learn.priority))?;
    }
    if learn.flags.contains(LearnFlags::SEND_FLOW_REM) {
        args.arg("send_flow_rem")?;
    }
    if learn.flags.contains(LearnFlags::DELETE_LEARNED) {
        args.arg("delete_learned")?;
    }
    if learn.cookie.0 != 0 {
        args.arg(format_args!("cookie={}", learn.cookie))?;
    }
    if learn.limit != 0 {
        args.arg(format_args!("limit={}", learn.limit))?;
    }
    if let Some(result) = learn.result_dst {
        args.arg(format_args!("result_dst={result}"))?;
    }
    learn.specs.iter().try_for_each(|spec| args.arg(spec))?;
    args.close()
}

impl fmt::Display for LearnSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Match { dst, src: LearnSource::Value(value) } if dst.is_whole() => {
                let to = Masked { value: *value, mask: ones(dst.n_bits) };
                write!(f, "{}={}", dst.field.info().name, Value { field: dst.field, to })
            }
            Self::Match { dst, src: LearnSource::Value(value) } => write!(f, "{dst}={value:#x}"),
            Self::Match { dst, src: LearnSource::Field(src) } if src == dst => dst.fmt(f),
            Self::Match { dst, src: LearnSource::Field(src) } => write!(f, "{dst}={src}"),
            Self::Load { dst, src: LearnSource::Value(value) } => {
                write!(f, "load:{value:#x}->{dst}")
            }
            Self::Load { dst, src: LearnSource::Field(src) } => write!(f, "load:{src}->{dst}"),
            Self::Output(src) => write!(f, "output:{src}"),
        }
    }
}
