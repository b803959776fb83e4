//! Whether the rows show what a transaction did.
//!
//! A server tells of a transaction's effects before it answers it. An effect that is not there by
//! then was not told, and whoever looks for a port among the rows would look in vain, or find one
//! that is gone. Looked at are the effects on which that depends: rows that came, and ports and
//! bridges that went.

use ovsdb::{Atom, Mutation, Mutator, OpResult, Operation, Snapshot, Table, Uuid};

/// Whether the rows show the effects of operations with these results.
pub(super) fn are_shown(operations: &[Operation], results: &[OpResult], rows: &Snapshot) -> bool {
    operations.iter().zip(results).all(|(operation, result)| match (operation, result) {
        (Operation::Insert { table, .. }, OpResult::Inserted(uuid)) => is_there(rows, *table, uuid),
        (Operation::Mutate { mutations, .. }, OpResult::Count(1..)) => {
            mutations.iter().all(|mutation| is_gone(rows, mutation))
        }
        _ => true,
    })
}

fn is_there(rows: &Snapshot, table: Table, uuid: &Uuid) -> bool {
    match table {
        Table::OpenVSwitch => rows.open_vswitch.contains_key(uuid),
        Table::Bridge => rows.bridges.contains_key(uuid),
        Table::Port => rows.ports.contains_key(uuid),
        Table::Interface => rows.interfaces.contains_key(uuid),
        Table::FlowTable => rows.flow_tables.contains_key(uuid),
    }
}

/// Whether the ports or bridges that the mutation took away are gone. A row that nothing refers to
/// goes by itself.
fn is_gone(rows: &Snapshot, mutation: &Mutation) -> bool {
    let taken = match mutation.mutator {
        Mutator::Delete => mutation.value.atoms().unwrap_or_default(),
        _ => return true,
    };
    taken.iter().all(|atom| match (atom, mutation.column.as_str()) {
        (Atom::Uuid(uuid), "ports") => !rows.ports.contains_key(uuid),
        (Atom::Uuid(uuid), "bridges") => !rows.bridges.contains_key(uuid),
        _ => true,
    })
}
