//! The task that feeds the reconciler and carries out what it decides.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use openflow::message::{
    FlowRemoved, FlowRemovedReason, FlowStats, PortDesc, PortReason, PortStatus,
};
use openflow::{Flow, Message, TableId};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep, sleep_until};
use tracing::{debug, info, warn};

use super::forget::Forgetter;
use super::transfer::{self, GroupReading, TransferError};
use super::{BridgeConfig, BridgeState, Ports, ReadError};
use crate::channel::{Channel, ChannelError, Condition, Purpose};
use crate::reconcile::{
    BarrierId, Dump, DumpScope, EncodedFlow, Event, Op, Outcome, Owner, Refusal, State,
};

/// Pause between two tries to connect. The socket is local: a try costs nothing.
const RECONNECT_PAUSE: Duration = Duration::from_millis(50);
/// Longest pause before a connection is made anew after exchanges that failed one after another:
/// what the switch has may be such that none ever succeeds.
const MAX_FAILURE_PAUSE: Duration = Duration::from_secs(5);
/// Changes taken in before something is sent.
const MAX_COALESCED: usize = 4096;

/// Who takes counters as they come.
pub(super) struct TakeCounters(pub(super) Box<dyn FnMut(FlowStats) + Send>);

impl fmt::Debug for TakeCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TakeCounters")
    }
}

/// What callers ask for.
#[derive(Debug)]
pub(super) enum Command {
    /// Something for the reconciler.
    Event(Event),
    /// Several that belong together.
    Events(Vec<Event>),
    /// Somebody waits.
    Barrier { id: u64, scope: Option<(Owner, Arc<str>)>, reply_tx: oneshot::Sender<Vec<Refusal>> },
    /// Somebody wants to know what the switch holds of a key's flows.
    FlowsOf { owner: Owner, key: Arc<str>, reply_tx: oneshot::Sender<Result<Vec<Flow>, ReadError>> },
    /// Somebody wants to know what the switch holds of an owner.
    FlowsOnSwitch { owner: Owner, reply_tx: oneshot::Sender<Result<Vec<Flow>, ReadError>> },
    /// Reads the counters of the owner's flows in a table.
    ReadCounters {
        owner: Owner,
        table: TableId,
        take: TakeCounters,
        reply_tx: oneshot::Sender<Result<(), ReadError>>,
    },
}

/// What tasks of one connection report.
#[derive(Debug)]
enum Report {
    Connected(Channel, mpsc::Receiver<Message>),
    Dumped(Dump),
    Tables(Vec<openflow::TableId>),
    BatchDone(Outcome),
    Failed(TransferError),
}

/// Keeps the bridge until nobody is there to ask for anything.
pub(super) async fn run(
    config: BridgeConfig,
    mut command_rx: mpsc::UnboundedReceiver<Command>,
    state_tx: watch::Sender<Arc<BridgeState>>,
    ports_tx: watch::Sender<Ports>,
) {
    let (report_tx, mut report_rx) = mpsc::unbounded_channel();
    let mut keeper = Keeper {
        state: State::new(config.sync_mode, config.cookie_marker),
        connection: None,
        condition_rx: None,
        async_rx: None,
        ports_tx,
        n_failed: 0,
        group_reading: GroupReading::Whole,
        epoch: 0,
        report_tx,
        barriers: HashMap::new(),
        reached: Vec::new(),
        forgetter: Forgetter::start(config.userspace_run_dir.clone()),
    };
    for owner in &config.owners {
        keeper.step(Event::Register(*owner));
    }
    for owner in &config.first_owners {
        keeper.step(Event::RegisterFirst(*owner));
    }
    keeper.connect(&config);
    let sync_deadline = Instant::now() + config.sync_deadline;
    let mut waiting_for_sync = true;
    let mut repair = interval_at(Instant::now() + config.repair_interval, config.repair_interval);
    let mut retry = interval_at(Instant::now() + config.retry_interval, config.retry_interval);
    repair.set_missed_tick_behavior(MissedTickBehavior::Delay);
    retry.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            command = command_rx.recv() => {
                let Some(command) = command else { return };
                keeper.command(command);
                for _ in 1..MAX_COALESCED {
                    let Ok(command) = command_rx.try_recv() else { break };
                    keeper.command(command);
                }
                keeper.step(Event::Flush);
            }
            Some((epoch, report)) = report_rx.recv() => {
                if epoch == keeper.epoch {
                    keeper.report(report);
                } else if matches!(report, Report::Failed(_)) {
                    // That its connection broke may be known first: it failed all the same.
                    keeper.n_failed = keeper.n_failed.saturating_add(1);
                }
            }
            message = next_async(&mut keeper.async_rx) => match message {
                Some(Message::FlowRemoved(removed)) => keeper.flow_removed(removed),
                Some(Message::PortStatus(status)) => keeper.port_changed(status),
                Some(message) => debug!(?message, "asynchronous message"),
                None => keeper.async_rx = None,
            },
            condition = next_condition(&mut keeper.condition_rx) => match condition {
                Condition::Closed => {
                    warn!(socket = %config.mgmt_socket.display(), "lost connection to the switch");
                    keeper.lose();
                    keeper.connect(&config);
                }
                Condition::Silent => {
                    warn!(socket = %config.mgmt_socket.display(), "the switch does not answer");
                    keeper.step(Event::Silent);
                }
                Condition::Answers => keeper.step(Event::Answers),
            },
            _ = repair.tick() => keeper.step(Event::RepairDue),
            _ = retry.tick(), if keeper.state.has_refused() => keeper.step(Event::RetryDue),
            () = sleep_until(sync_deadline), if waiting_for_sync => {
                waiting_for_sync = false;
                keeper.sync_deadline();
            }
        }
        let summary = keeper.state.summary();
        state_tx.send_if_modified(|published| {
            let changed = **published != summary;
            if changed {
                *published = Arc::new(summary);
            }
            changed
        });
        // Whoever waited sees the state that is reached; it may also have given up.
        for (reply_tx, refusals) in keeper.reached.drain(..) {
            let _ = reply_tx.send(refusals);
        }
    }
}

/// How long to wait before the switch is looked at again. One failure is a cut connection, which
/// costs nothing; each one more doubles the pause.
fn failure_pause(n_failed: u32) -> Duration {
    match n_failed {
        0 | 1 => Duration::ZERO,
        n => RECONNECT_PAUSE.saturating_mul(1 << (n - 2).min(16)).min(MAX_FAILURE_PAUSE),
    }
}

/// The next asynchronous message; never without a connection.
async fn next_async(async_rx: &mut Option<mpsc::Receiver<Message>>) -> Option<Message> {
    match async_rx {
        Some(async_rx) => async_rx.recv().await,
        None => std::future::pending().await,
    }
}

/// The next change of how the connection is; never without one.
async fn next_condition(condition_rx: &mut Option<watch::Receiver<Condition>>) -> Condition {
    match condition_rx {
        // An error means that the connection's task is gone, and the connection with it.
        Some(condition_rx) => match condition_rx.changed().await {
            Ok(()) => *condition_rx.borrow_and_update(),
            Err(_) => Condition::Closed,
        },
        None => std::future::pending().await,
    }
}

/// The task's state.
struct Keeper {
    state: State,
    connection: Option<Channel>,
    condition_rx: Option<watch::Receiver<Condition>>,
    async_rx: Option<mpsc::Receiver<Message>>,
    ports_tx: watch::Sender<Ports>,
    /// Exchanges that failed since one succeeded.
    n_failed: u32,
    /// How groups are read the next time.
    group_reading: GroupReading,
    /// Counts connections: reports of former ones mean nothing.
    epoch: u64,
    report_tx: mpsc::UnboundedSender<(u64, Report)>,
    barriers: HashMap<BarrierId, oneshot::Sender<Vec<Refusal>>>,
    /// Barriers that are reached and not told yet.
    reached: Vec<(oneshot::Sender<Vec<Refusal>>, Vec<Refusal>)>,
    forgetter: Forgetter,
}

impl Keeper {
    fn command(&mut self, command: Command) {
        match command {
            Command::Event(event) => self.step(event),
            Command::Events(events) => events.into_iter().for_each(|event| self.step(event)),
            Command::Barrier { id, scope, reply_tx } => {
                self.barriers.insert(BarrierId(id), reply_tx);
                self.step(Event::Barrier { id: BarrierId(id), scope });
            }
            Command::FlowsOf { owner, key, reply_tx } => {
                let wanted = self.state.wanted(owner, &key);
                self.read(owner, Some(wanted), reply_tx);
            }
            Command::FlowsOnSwitch { owner, reply_tx } => self.read(owner, None, reply_tx),
            Command::ReadCounters { owner, table, take, reply_tx } => {
                let Some(channel) = self.connection.clone() else {
                    let _ = reply_tx.send(Err(ReadError::NotConnected));
                    return;
                };
                let marker = self.state.cookie_marker();
                tokio::spawn(async move {
                    let read = transfer::counters(&channel, owner, marker, table, take.0).await;
                    let _ = reply_tx.send(read.map_err(|error| ReadError::Exchange(error.into())));
                });
            }
        }
    }

    fn step(&mut self, event: Event) {
        for op in self.state.step(event) {
            self.carry_out(op);
        }
    }

    fn carry_out(&mut self, op: Op) {
        match op {
            Op::Report(refusal) => warn!(%refusal, "not on the switch"),
            Op::BarrierDone(id, refusals) => {
                if let Some(reply_tx) = self.barriers.remove(&id) {
                    self.reached.push((reply_tx, refusals));
                }
            }
            Op::Dump(scope) => {
                let reading = self.group_reading;
                self.transfer(move |channel| async move {
                    transfer::dump(&channel, scope, reading).await.map(Report::Dumped)
                });
            }
            Op::CountTables => {
                self.transfer(|channel| async move {
                    transfer::tables_in_use(&channel).await.map(Report::Tables)
                });
            }
            Op::Send(batch) => {
                self.transfer(move |channel| async move {
                    transfer::send_batch(&channel, batch).await.map(Report::BatchDone)
                });
            }
        }
    }

    /// Runs an exchange with the switch beside this task. Exchanges are put on the connection in
    /// the order of these calls only as far as it matters: a dump is not evaluated for what is in
    /// flight.
    fn transfer<F>(&mut self, exchange: impl FnOnce(Channel) -> F)
    where
        F: Future<Output = Result<Report, TransferError>> + Send + 'static,
    {
        let Some(channel) = self.connection.clone() else { return };
        let (epoch, report_tx) = (self.epoch, self.report_tx.clone());
        let exchange = exchange(channel);
        tokio::spawn(async move {
            let report = exchange.await.unwrap_or_else(Report::Failed);
            // Fails only when the bridge is not kept any more.
            let _ = report_tx.send((epoch, report));
        });
    }

    /// Reads beside this task; whoever asked may have gone away meanwhile.
    fn read(
        &self,
        owner: Owner,
        wanted: Option<Vec<EncodedFlow>>,
        reply_tx: oneshot::Sender<Result<Vec<Flow>, ReadError>>,
    ) {
        let Some(channel) = self.connection.clone() else {
            let _ = reply_tx.send(Err(ReadError::NotConnected));
            return;
        };
        let marker = self.state.cookie_marker();
        tokio::spawn(async move {
            let read = transfer::flows_of(&channel, owner, marker, wanted.as_deref()).await;
            let _ = reply_tx.send(read.map_err(|error| ReadError::Exchange(error.into())));
        });
    }

    fn report(&mut self, report: Report) {
        match report {
            Report::Connected(channel, async_rx) => {
                info!(
                    datapath_id = format!("{:016x}", channel.features().datapath_id),
                    "connected to the switch"
                );
                let mut condition_rx = channel.condition();
                // One that is closed by now is seen as changed.
                condition_rx.mark_changed();
                self.condition_rx = Some(condition_rx);
                self.connection = Some(channel);
                self.async_rx = Some(async_rx);
                self.step(Event::Connected);
            }
            Report::Dumped(dump) => {
                self.n_failed = 0;
                if !matches!(dump.scope, DumpScope::Table(_)) {
                    self.group_reading = GroupReading::Whole;
                }
                self.step(Event::Dumped(dump));
            }
            Report::Tables(tables) => self.step(Event::TableCounts(tables)),
            Report::BatchDone(outcome) => {
                self.n_failed = 0;
                if outcome.committed {
                    self.forgetter.changed();
                }
                self.step(Event::BatchDone(outcome));
            }
            Report::Failed(error) => {
                self.n_failed = self.n_failed.saturating_add(1);
                // That the connection broke looks the same: what fails the one way is tried the other.
                self.group_reading = match (self.group_reading, &error) {
                    (GroupReading::Whole, TransferError::Objects(_)) => GroupReading::Numbers,
                    _ => GroupReading::Whole,
                };
                // Closing it leads to a new connection, and that to a fresh look at the switch.
                warn!(error = crate::error_chain(&error), "exchange with the switch");
                if let Some(channel) = &self.connection {
                    channel.close();
                }
            }
        }
    }

    /// Connects in the background, however long it takes.
    fn connect(&mut self, config: &BridgeConfig) {
        self.epoch += 1;
        let (epoch, report_tx) = (self.epoch, self.report_tx.clone());
        let (socket, timing) = (config.mgmt_socket.clone(), config.timing);
        let pause = failure_pause(self.n_failed);
        tokio::spawn(async move {
            sleep(pause).await;
            let mut last_error = String::new();
            loop {
                match Channel::connect(&socket, Purpose::Programming, timing).await {
                    Ok((channel, async_rx)) => {
                        let _ = report_tx.send((epoch, Report::Connected(channel, async_rx)));
                        return;
                    }
                    Err(error) => log_once(&mut last_error, &error, "connect to the switch"),
                }
                tokio::select! {
                    () = sleep(RECONNECT_PAUSE) => {}
                    () = report_tx.closed() => return,
                }
            }
        });
    }

    fn lose(&mut self) {
        self.connection = None;
        self.condition_rx = None;
        self.async_rx = None;
        // Ports come and go unheard now.
        self.ports_tx.send_modify(Ports::clear);
        self.step(Event::Disconnected);
    }

    fn sync_deadline(&mut self) {
        if !self.state.summary().owners_synced {
            warn!("not all owners are synced in time; what they have not claimed by now goes");
        }
        self.step(Event::SyncDeadline);
        self.step(Event::Flush);
    }

    fn port_changed(&mut self, status: PortStatus) {
        let PortDesc { name, port, .. } = status.desc;
        self.ports_tx.send_if_modified(|ports| match status.reason {
            PortReason::Add | PortReason::Modify => ports.insert(name, port) != Some(port),
            // Its successor may have been told of first.
            PortReason::Delete => {
                let is_it = ports.get(&name) == Some(&port);
                if is_it {
                    ports.remove(&name);
                }
                is_it
            }
        });
    }

    fn flow_removed(&mut self, removed: FlowRemoved) {
        let flow = Flow::new(removed.table, removed.priority, removed.matching);
        let Ok(flow) = EncodedFlow::new(flow) else { return };
        match removed.reason {
            FlowRemovedReason::IdleTimeout | FlowRemovedReason::HardTimeout => {
                self.step(Event::FlowExpired(flow));
            }
            _ => self.step(Event::FlowDeleted(flow)),
        }
        self.step(Event::Flush);
    }
}

/// Warns of an error unless it is the same as last time.
pub(super) fn log_once(last: &mut String, error: &ChannelError, what: &str) {
    let text = crate::error_chain(error);
    if *last != text {
        debug!(error = text, "{what}");
        *last = text;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_grows_with_failures_in_a_row_up_to_seconds() {
        let pauses = [0, 1, 2, 3, 4, 8, 9, 40, u32::MAX].map(|n| failure_pause(n).as_millis());
        assert_eq!(pauses, [0, 0, 50, 100, 200, 3200, 5000, 5000, 5000]);
    }
}
