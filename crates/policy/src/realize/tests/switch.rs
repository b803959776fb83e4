//! A flow table in memory: takes the realizer's ops and says what becomes of a packet, by the rules
//! of `ovs-actions(7)` for conjunctive matches.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use openflow::{Action, CtState, Field, Flow, GroupId, Match, OfPort, TableId};
use pipeline::fields::{self, EGRESS_RULE_ID, INGRESS_RULE_ID, POLICY_CONJ_ID};
use pipeline::policy::{Direction, Place, metric_table, rule_table};

use crate::realize::Op;

/// A packet that opens a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    pub(crate) l4: L4,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum L4 {
    Tcp { src: u16, dst: u16 },
    Udp { src: u16, dst: u16 },
    Sctp { src: u16, dst: u16 },
    Icmp { kind: u8, code: u8 },
}

/// What became of a packet in one direction, and by which rule (0 for none).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fate {
    Passed(u32),
    Dropped(u32),
    Rejected(u32),
}

impl Fate {
    pub(crate) fn passed(self) -> bool {
        matches!(self, Self::Passed(_))
    }
}

/// What of a Service was dialled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    Address,
    NodePort,
}

type Registers = BTreeMap<Field, u128>;

/// The flows that were asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Switch {
    pub(crate) by_key: BTreeMap<String, Vec<Flow>>,
    tables: BTreeMap<TableId, Vec<Flow>>,
}

impl Switch {
    /// Carries flow ops out, all at once.
    #[track_caller]
    pub(crate) fn take(&mut self, ops: &[Op]) {
        for op in ops {
            match op {
                Op::Set { key, flows } => {
                    self.by_key.insert(key.clone(), flows.clone());
                }
                Op::Remove { key } => {
                    self.by_key.remove(key);
                }
                _ => {}
            }
        }
        self.tables.clear();
        let mut seen = BTreeSet::new();
        for flow in self.by_key.values().flatten() {
            flow.check().unwrap_or_else(|error| panic!("{flow}: {error}"));
            assert!(seen.insert(flow.key()), "twice: {flow}");
            self.tables.entry(flow.table).or_default().push(flow.clone());
        }
        for flows in self.tables.values_mut() {
            flows.sort_by_key(|flow| std::cmp::Reverse(flow.priority));
        }
    }

    /// All flows.
    pub(crate) fn flows(&self) -> Vec<Flow> {
        self.by_key.values().flatten().cloned().collect()
    }

    /// What becomes of a packet from or to a Pod of this node.
    pub(crate) fn fate(&self, direction: Direction, to: Option<OfPort>, packet: Packet) -> Fate {
        let mut registers = fields_of(packet);
        if let Some(port) = to {
            registers.insert(Field::Reg(1), port.0.into());
        }
        self.decide(direction, Place::Tiered, registers)
    }

    /// What becomes of a packet whose connection goes by a group of a Service, where it comes in: by
    /// the Service's own address, or by its NodePort.
    pub(crate) fn fate_by_service(&self, packet: Packet, group: GroupId, by: By) -> Fate {
        let mut registers = fields_of(packet);
        registers.insert(Field::Reg(7), group.0.into());
        if by == By::NodePort {
            let place = fields::TO_NODE_PORT.place;
            registers.insert(place.field, place.place(1));
        }
        self.decide(Direction::Egress, Place::NodePort, registers)
    }

    fn decide(&self, direction: Direction, first: Place, mut registers: Registers) -> Fate {
        let places = [first, Place::Tiered, Place::Kubernetes, Place::Baseline];
        let order = places.map(|place| rule_table(direction, place));
        let metric = metric_table(direction);
        let mut table = order[0];
        while table < metric {
            let next = order.into_iter().find(|t| *t > table).unwrap_or(metric);
            table = match self.look_up(table, &mut registers) {
                None => next,
                Some(flow) => {
                    registers.remove(&Field::ConjId);
                    match run(&flow.actions, &mut registers) {
                        Some(next) => next,
                        None => return Fate::Dropped(0),
                    }
                }
            };
        }
        let get = |place: openflow::Subfield| {
            let value = registers.get(&place.field).copied().unwrap_or_default();
            u32::try_from(place.extract(value)).expect("32 bits")
        };
        if get(fields::POLICY_DENY.place) == 1 {
            let rule = get(POLICY_CONJ_ID);
            return match get(fields::POLICY_DISPOSITION) {
                1 => Fate::Dropped(rule),
                _ => Fate::Rejected(rule),
            };
        }
        Fate::Passed(get(match direction {
            Direction::Egress => EGRESS_RULE_ID,
            Direction::Ingress => INGRESS_RULE_ID,
        }))
    }

    fn look_up(&self, table: TableId, registers: &mut Registers) -> Option<&Flow> {
        let flows = self.tables.get(&table)?;
        let taking: Vec<&Flow> = flows.iter().filter(|f| takes(&f.matching, registers)).collect();
        let is_soft =
            |flow: &Flow| flow.actions.iter().any(|a| matches!(a, Action::Conjunction { .. }));
        let hard = taking.iter().copied().find(|flow| !is_soft(flow));
        let mut soft: Vec<&Flow> = taking.into_iter().filter(|flow| is_soft(flow)).collect();
        soft.retain(|flow| hard.is_none_or(|hard| flow.priority > hard.priority));
        for level in soft.chunk_by(|a, b| a.priority == b.priority) {
            let mut met: BTreeMap<u32, (BTreeSet<u8>, u8)> = BTreeMap::new();
            for action in level.iter().flat_map(|flow| &flow.actions) {
                if let Action::Conjunction { id, clause, n_clauses } = action {
                    let entry = met.entry(id.0).or_insert((BTreeSet::new(), *n_clauses));
                    entry.0.insert(*clause);
                }
            }
            let complete = met.iter().filter(|(_, (c, n))| c.len() == usize::from(*n));
            let acts: Vec<&Flow> = complete
                .filter_map(|(id, _)| {
                    registers.insert(Field::ConjId, u128::from(*id));
                    flows.iter().find(|f| !is_soft(f) && takes(&f.matching, registers))
                })
                .collect();
            registers.remove(&Field::ConjId);
            if let Some(first) = acts.first() {
                // The switch may take any: they have to say the same.
                let say = |flow: &Flow| {
                    let mut registers = Registers::new();
                    let next = run(&flow.actions, &mut registers);
                    let said =
                        [fields::POLICY_DENY.place, fields::POLICY_DISPOSITION].map(|place| {
                            place.extract(registers.get(&place.field).copied().unwrap_or_default())
                        });
                    (next, said)
                };
                assert!(acts.iter().all(|flow| say(flow) == say(first)), "{acts:?}");
                return Some(first);
            }
        }
        hard
    }
}

/// Runs actions; gives the table to go on in.
fn run(actions: &[Action], registers: &mut Registers) -> Option<TableId> {
    let mut next = None;
    for action in actions {
        match action {
            Action::SetField { field, to } => {
                let kept = registers.get(field).copied().unwrap_or_default();
                registers.insert(*field, (kept & !to.mask) | to.value);
            }
            Action::GotoTable(table) => next = Some(*table),
            Action::Note(_) | Action::Controller(_) => {}
            other => panic!("policies do not use {other:?}"),
        }
    }
    next
}

fn takes(matching: &Match, registers: &Registers) -> bool {
    matching.iter().all(|(field, masked)| {
        let has = registers.get(&field).copied();
        let is_register = matches!(field, Field::Reg(_) | Field::ConjId);
        let value = has.or(is_register.then_some(0));
        value.is_some_and(|value| value & masked.mask == masked.value)
    })
}

fn fields_of(packet: Packet) -> Registers {
    let Packet { src, dst, l4 } = packet;
    let mut fields = Registers::new();
    let state = CtState::TRK | CtState::NEW;
    fields.insert(Field::CtState, state.bits().into());
    let v4 = match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            fields.insert(Field::EthType, 0x0800);
            fields.insert(Field::Ipv4Src, u32::from(src).into());
            fields.insert(Field::Ipv4Dst, u32::from(dst).into());
            true
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            fields.insert(Field::EthType, 0x86dd);
            fields.insert(Field::Ipv6Src, src.into());
            fields.insert(Field::Ipv6Dst, dst.into());
            false
        }
        other => panic!("addresses of two families: {other:?}"),
    };
    let mut ports = |proto: u128, [src_field, dst_field]: [Field; 2], src: u16, dst: u16| {
        fields.insert(Field::IpProto, proto);
        fields.insert(src_field, src.into());
        fields.insert(dst_field, dst.into());
    };
    match l4 {
        L4::Tcp { src, dst } => ports(6, [Field::TcpSrc, Field::TcpDst], src, dst),
        L4::Udp { src, dst } => ports(17, [Field::UdpSrc, Field::UdpDst], src, dst),
        L4::Sctp { src, dst } => ports(132, [Field::SctpSrc, Field::SctpDst], src, dst),
        L4::Icmp { kind, code } if v4 => {
            let [kind_field, code_field] = [Field::Icmpv4Type, Field::Icmpv4Code];
            ports(1, [kind_field, code_field], kind.into(), code.into());
        }
        L4::Icmp { kind, code } => {
            let [kind_field, code_field] = [Field::Icmpv6Type, Field::Icmpv6Code];
            ports(58, [kind_field, code_field], kind.into(), code.into());
        }
    }
    fields
}
