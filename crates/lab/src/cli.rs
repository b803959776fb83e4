//! The command line of antrea-lab: what can be said, and which module does it.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::variant::{Datapath, IpFamily, Tunnel};

/// Nodes in network namespaces on real Open vSwitch, Pods through the real CNI protocol.
///
/// A lab node is a network namespace with its own ovsdb-server, ovs-vswitchd and antrea-agent; a
/// lab Pod is a network namespace attached by antrea-cni. No container engine is needed, and the
/// machine's own namespace gets no address, route, link or rule.
#[derive(Debug, Parser)]
#[command(name = "antrea-lab", version, about, max_term_width = 100)]
pub struct Cli {
    /// Directory of the lab; each directory is a lab of its own.
    #[arg(long, global = true, default_value = crate::layout::DEFAULT_DIR, value_name = "DIR")]
    pub dir: PathBuf,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start a lab and wait until every node is ready.
    Up(UpArgs),
    /// End the lab; also after a crash, or an `up` that did not finish.
    Down(JsonArgs),
    /// Show what runs and what does not.
    Status(JsonArgs),
    /// Let everyone reach everyone, and show whose address the far side saw.
    Matrix(JsonArgs),
    /// Run scenarios; each brings the lab it needs and ends it.
    Check(CheckArgs),
    /// Show all of it: start a lab, make Pods, print the matrix, figures and a packet's way.
    Demo(DemoArgs),
    /// Work on one node.
    Node(NodeArgs),
    /// Stop, kill and start what runs outside of nodes.
    Component(ComponentArgs),
    /// Run a tool of Open vSwitch against a node's switch.
    Ovs(OvsArgs),
    /// Pods of a lab without an API server.
    Pod(PodArgs),
    /// Show the way of a packet between two Pods through the named tables.
    Trace(TraceArgs),
    /// Measure figures on a lab made for it, and say what gives them.
    Bench(BenchArgs),
    /// What the lab starts by itself.
    #[command(flatten)]
    Hidden(Hidden),
}

/// Programs of the lab that are started by it.
#[derive(Debug, Subcommand)]
pub enum Hidden {
    /// The built-in program of Pods.
    #[command(hide = true)]
    PodServer {
        /// What it calls itself in answers.
        #[arg(long)]
        name: String,
        /// Where it listens.
        #[arg(long, default_value_t = crate::echo::PORT)]
        port: u16,
    },
    /// The API server of the lab.
    #[command(hide = true)]
    Apiserver,
    /// The scheduler of the lab.
    #[command(hide = true)]
    Scheduler,
    /// The kubelet of a node.
    #[command(hide = true)]
    Kubelet {
        /// Which node.
        #[arg(long)]
        node: String,
        /// Its addresses.
        #[arg(long = "address", required = true)]
        addresses: Vec<std::net::IpAddr>,
        /// Milliseconds between renewals of its Lease.
        #[arg(long)]
        renew_every: u64,
        /// Serve its API on its addresses too.
        #[arg(long)]
        serve: bool,
    },
    /// Runs the container of a directory to its end.
    #[command(hide = true)]
    ContainerRun {
        /// The container's directory.
        container: PathBuf,
    },
}

/// Options of `up`, also taken by `demo`.
#[derive(Clone, Debug, Args)]
pub struct UpArgs {
    /// Number of nodes.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=i64::from(crate::layout::MAX_NODES)))]
    pub nodes: u8,
    /// Addresses of Pods.
    #[arg(long, value_enum, default_value_t = IpFamily::Ipv4)]
    pub ip_family: IpFamily,
    /// What carries packets between nodes.
    #[arg(long, value_enum, default_value_t = Tunnel::Geneve)]
    pub tunnel: Tunnel,
    /// Datapath of Open vSwitch.
    #[arg(long, value_enum, default_value_t = DatapathChoice::Auto)]
    pub datapath: DatapathChoice,
    /// MTU of the links between nodes.
    #[arg(long, value_name = "BYTES", default_value_t = crate::up::UNDERLAY_MTU, value_parser = clap::value_parser!(u16).range(1280..=9216))]
    pub underlay_mtu: u16,
    /// Seconds that a kubelet may be silent before its Node is taken for lost; it reports four
    /// times as often.
    #[arg(long, value_name = "SECONDS", default_value_t = 40, value_parser = clap::value_parser!(u16).range(1..=3600))]
    pub node_grace: u16,
    /// Number of antrea-controllers, each a process of its own; all of them serve the agents.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=i64::from(crate::cluster::controllers::MAX)), conflicts_with = "standalone")]
    pub controllers: u8,
    /// Agents serve everybody's traffic to Services, not only that of Pods.
    #[arg(long, conflicts_with = "standalone")]
    pub proxy_all: bool,
    /// Use this API server and its controllers; the lab brings only nodes and their kubelets.
    #[arg(long, value_name = "FILE", conflicts_with = "standalone")]
    pub kubeconfig: Option<PathBuf>,
    /// With --kubeconfig: bring no scheduler, the cluster has one.
    #[arg(long, requires = "kubeconfig")]
    pub no_scheduler: bool,
    /// With --kubeconfig: where the API server's way into the lab listens [default: egress.sock in
    /// the lab's directory].
    #[arg(long, value_name = "FILE", requires = "kubeconfig")]
    pub egress_socket: Option<PathBuf>,
    /// With --kubeconfig: antrea-controller gives Nodes no Pod CIDRs, the cluster's controller
    /// manager does (--allocate-node-cidrs).
    #[arg(long, requires = "kubeconfig")]
    pub no_node_ipam: bool,
    /// No API server: agents read a file of nodes, `antrea-lab pod` makes Pods.
    #[arg(long)]
    pub standalone: bool,
    /// Where antrea-agent, antrea-cni and antrea-controller are [default: beside this program].
    #[arg(long, value_name = "DIR")]
    pub bin_dir: Option<PathBuf>,
    /// When something fails, leave what was made for a look at it.
    #[arg(long)]
    pub leave: bool,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Datapath of Open vSwitch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DatapathChoice {
    /// In the kernel if it has the openvswitch module loaded, in user space if not.
    Auto,
    /// In user space.
    Netdev,
    /// In the kernel.
    System,
}

/// Whether to print JSON.
#[derive(Clone, Debug, Args)]
pub struct JsonArgs {
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Options of `check`.
#[derive(Clone, Debug, Args)]
pub struct CheckArgs {
    /// Which scenarios; all when none is named.
    #[arg(value_name = "SCENARIO")]
    pub scenarios: Vec<String>,
    /// Addresses of Pods, one kind of lab for each.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [IpFamily::Ipv4])]
    pub ip_family: Vec<IpFamily>,
    /// What carries packets between nodes, one kind of lab for each.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Tunnel::Geneve])]
    pub tunnel: Vec<Tunnel>,
    /// Datapath of Open vSwitch, one kind of lab for each.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Datapath::Netdev])]
    pub datapath: Vec<Datapath>,
    /// Every family with every tunnel on every datapath.
    #[arg(long, conflicts_with_all = ["ip_family", "tunnel", "datapath"])]
    pub all: bool,
    /// Check with this API server, which is to be there for nothing else; runs the scenarios that
    /// need one.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Where that API server's way into the labs listens.
    #[arg(long, value_name = "FILE", requires = "kubeconfig")]
    pub egress_socket: Option<PathBuf>,
    /// File with the process of that API server, which somebody starts again when it ends.
    #[arg(long, value_name = "FILE", requires = "kubeconfig")]
    pub api_server_pid: Option<PathBuf>,
    /// List the scenarios and end.
    #[arg(long)]
    pub list: bool,
    /// Where the node programs are [default: beside this program].
    #[arg(long, value_name = "DIR")]
    pub bin_dir: Option<PathBuf>,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
}

/// What `bench` measures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum BenchWhat {
    /// ADD, the plugin, pairs of Pods.
    #[default]
    Network,
    /// From a policy that is created to one that is enforced.
    Policy,
    /// A Service against its endpoint.
    Services,
    /// An agent with 100 Pods, 1,000 nodes and 1,000 policies, and a policy with 15,000 peers.
    Load,
    /// The controller alone with a large cluster and 1,000 agents.
    Scale,
}

/// Options of `bench`.
#[derive(Clone, Debug, Args)]
pub struct BenchArgs {
    /// What to measure.
    #[arg(value_enum, default_value_t)]
    pub what: BenchWhat,
    /// Namespaces of `scale`, with four Pods and three policies each.
    #[arg(long, value_name = "N", default_value_t = 25_000)]
    pub namespaces: usize,
    /// Where the node programs are [default: beside this program].
    #[arg(long, value_name = "DIR")]
    pub bin_dir: Option<PathBuf>,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Options of `demo`.
#[derive(Clone, Debug, Args)]
pub struct DemoArgs {
    /// Leave the lab running at the end.
    #[arg(long)]
    pub keep: bool,
    /// The lab.
    #[command(flatten)]
    pub up: UpArgs,
}

/// Options of `node`.
#[derive(Clone, Debug, Args)]
pub struct NodeArgs {
    /// What to do on the node.
    #[command(subcommand)]
    pub command: NodeCommand,
}

/// What can be done on a node.
#[derive(Clone, Debug, Subcommand)]
pub enum NodeCommand {
    /// Run a command in the node's namespace.
    Exec {
        /// Which node.
        node: String,
        /// The command.
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// Ask a component of the node to end, and wait until it has.
    Stop {
        /// Which node.
        node: String,
        /// Which component.
        component: NodeComponent,
    },
    /// Kill a component of the node with SIGKILL.
    Kill {
        /// Which node.
        node: String,
        /// Which component.
        component: NodeComponent,
    },
    /// Start a component that does not run.
    Start {
        /// Which node.
        node: String,
        /// Which component.
        component: NodeComponent,
    },
    /// Lose all that a reboot loses, and start again.
    Reboot {
        /// Which node.
        node: String,
    },
}

/// A component of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum NodeComponent {
    /// antrea-agent.
    Agent,
    /// ovs-vswitchd.
    Vswitchd,
    /// ovsdb-server.
    Ovsdb,
    /// The lab's kubelet.
    Kubelet,
}

impl NodeComponent {
    /// As it is written on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Vswitchd => "vswitchd",
            Self::Ovsdb => "ovsdb",
            Self::Kubelet => "kubelet",
        }
    }
}

/// Options of `component`.
#[derive(Clone, Debug, Args)]
pub struct ComponentArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: ComponentCommand,
}

/// What can be done with a component outside of nodes.
#[derive(Clone, Copy, Debug, Subcommand)]
pub enum ComponentCommand {
    /// Ask it to end, and wait until it has.
    Stop {
        /// Which component.
        component: ClusterComponent,
    },
    /// Kill it with SIGKILL.
    Kill {
        /// Which component.
        component: ClusterComponent,
    },
    /// Start it; it must not run.
    Start {
        /// Which component.
        component: ClusterComponent,
    },
}

/// A component that belongs to no node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ClusterComponent {
    /// The API server, or the way to one that is not ours.
    Apiserver,
    /// antrea-controller, or the first of several.
    Controller,
    /// The second one.
    #[value(name = "controller-2")]
    Controller2,
    /// The third one.
    #[value(name = "controller-3")]
    Controller3,
    /// The lab's scheduler.
    Scheduler,
}

/// Options of `ovs`.
#[derive(Clone, Debug, Args)]
pub struct OvsArgs {
    /// Which node.
    pub node: String,
    /// The tool (vsctl, ofctl, appctl) and its arguments; `ofctl dump-flows br-int` works.
    #[arg(last = true, required = true, value_name = "TOOL ARGS")]
    pub command: Vec<String>,
}

/// Options of `pod`.
#[derive(Clone, Debug, Args)]
pub struct PodArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: PodCommand,
}

/// What can be done with Pods.
#[derive(Clone, Debug, Subcommand)]
pub enum PodCommand {
    /// Make a Pod on a node; without a command it runs an echo server on port 8080.
    Add {
        /// Which node.
        node: String,
        /// Its name.
        name: String,
        /// Its namespace.
        #[arg(long, default_value = "default")]
        namespace: String,
        /// Print the result as JSON.
        #[arg(long)]
        json: bool,
        /// A command from the machine's file system.
        #[arg(last = true)]
        command: Vec<String>,
    },
    /// Remove a Pod.
    Del {
        /// NAME or NAMESPACE/NAME.
        name: String,
    },
    /// List Pods.
    List(JsonArgs),
    /// Run a command in a Pod's network namespace.
    Exec {
        /// NAME or NAMESPACE/NAME.
        name: String,
        /// The command.
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
}

/// Options of `trace`.
#[derive(Clone, Debug, Args)]
pub struct TraceArgs {
    /// The sending Pod: NAME or NAMESPACE/NAME.
    pub source: String,
    /// The receiver: a Pod, a node, or an address.
    pub destination: String,
    /// TCP port it is sent to.
    #[arg(long, default_value_t = crate::echo::PORT)]
    pub port: u16,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent_and_documented() {
        let command = Cli::command();
        command.clone().debug_assert();
        for sub in command.get_subcommands() {
            assert!(sub.get_about().is_some(), "{} has no help", sub.get_name());
        }
    }

    #[test]
    fn options_of_the_contract_are_taken() {
        for line in [
            "antrea-lab up --nodes 2 --ip-family ipv4 --tunnel geneve --datapath auto --dir /run/x",
            "antrea-lab up --kubeconfig f",
            "antrea-lab node exec node-1 -- ip addr",
            "antrea-lab ovs node-1 -- ofctl dump-flows br-int",
            "antrea-lab check agent-restart mtu --json",
            "antrea-lab check --ip-family ipv4,dual --tunnel vxlan,gre --datapath netdev",
            "antrea-lab check --all",
            "antrea-lab check --list",
            "antrea-lab node stop node-1 agent",
            "antrea-lab node reboot node-1",
            "antrea-lab component kill apiserver",
            "antrea-lab component start controller",
            "antrea-lab demo --keep",
            "antrea-lab bench --json",
        ] {
            Cli::try_parse_from(line.split(' ')).unwrap_or_else(|e| panic!("{line}: {e}"));
        }
        assert!(Cli::try_parse_from(["antrea-lab", "up", "--nodes", "0"]).is_err());
    }
}
