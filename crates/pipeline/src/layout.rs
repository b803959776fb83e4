//! Which tables are in use on a node, and how a packet gets from one to the next.

use std::collections::BTreeMap;

use openflow::{Flow, Intent, Match, TableId};

use crate::features::{network_policy, pod_connectivity, service};
use crate::fields::{self, Category, Miss, Pipeline, Stage, TABLES, Table, cookie};
use crate::node::NodeConfig;

/// The tables in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    active: BTreeMap<TableId, &'static Table>,
}

impl Layout {
    /// The tables that the node's features need.
    pub(crate) fn of(node: &NodeConfig) -> Self {
        let mut needed = pod_connectivity::needed_tables(node);
        needed.extend(network_policy::needed_tables());
        needed.extend(service::needed_tables(node));
        let active = TABLES.iter().filter(|t| needed.contains(&t.id)).map(|t| (t.id, t)).collect();
        Self { active }
    }

    /// The tables in use, in order.
    pub fn tables(&self) -> impl Iterator<Item = &'static Table> + '_ {
        self.active.values().copied()
    }

    /// Whether the table is in use.
    #[must_use]
    pub fn has(&self, table: TableId) -> bool {
        self.active.contains_key(&table)
    }

    /// The table in use that follows `table` in its pipeline.
    #[must_use]
    pub fn next(&self, table: TableId) -> Option<TableId> {
        let pipeline = fields::table_of(table)?.pipeline;
        self.tables().find(|t| t.pipeline == pipeline && t.id > table).map(|t| t.id)
    }

    /// Where a stage begins: its first table in use, or that of the first later stage that has one.
    #[must_use]
    pub fn first_of(&self, pipeline: Pipeline, stage: Stage) -> Option<TableId> {
        self.tables().find(|t| t.pipeline == pipeline && t.stage >= stage).map(|t| t.id)
    }

    /// Where a stage of the IP pipeline begins. The pipeline ends with a table that every node
    /// has.
    pub(crate) fn ip_stage(&self, stage: Stage) -> TableId {
        self.first_of(Pipeline::Ip, stage).unwrap_or(fields::OUTPUT)
    }

    /// The table of the IP pipeline in use that follows `table`.
    pub(crate) fn ip_next(&self, table: TableId) -> TableId {
        self.next(table).unwrap_or(fields::OUTPUT)
    }
}

/// What each table in use does with packets that no feature's flow takes.
#[must_use]
pub fn miss_flows(node: &NodeConfig) -> Vec<Intent> {
    let layout = node.layout();
    let cookie = cookie(Category::Framework, 0);
    let flows = layout.tables().filter_map(|table| {
        let flow = Flow::new(table.id, fields::MISS, Match::new()).cookie(cookie);
        match table.miss {
            Miss::Feature => None,
            Miss::Drop => Some(flow),
            // The last table of a pipeline has nothing after it and drops.
            Miss::Next => Some(match layout.next(table.id) {
                Some(next) => flow.goto_table(next),
                None => flow,
            }),
        }
    });
    flows.map(Intent::from).collect()
}
