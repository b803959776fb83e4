//! From a parsed command line to its effect and the process' exit code.

use std::process::{Command as Program, ExitCode};
use std::time::Duration;

use serde::Serialize;
use serde_json::json;

use crate::cli::{
    CheckArgs, Cli, Command, Datapath, DemoArgs, Hidden, IpFamily, NodeCommand, NodeComponent,
    PodCommand, Tunnel, UpArgs,
};
use crate::cluster;
use crate::container;
use crate::error::{Doing, LabError, Result};
use crate::kubelet::{self, KubeletOptions};
use crate::layout::Layout;
use crate::process::ProcessId;
use crate::sandbox::PodIdentity;
use crate::state::{self, Mode, SchedulerChoice, Store};
use crate::ui::{self, Progress};
use crate::up::{OnFailure, UpOptions};
use crate::{
    agent, bench, check, demo, down, interrupt, matrix, netns, ovs, pod_server, pods, preflight,
    status, trace, up,
};

/// Runs a command; failures are shown with what to do next.
#[must_use]
pub fn main(cli: Cli) -> ExitCode {
    match dispatch(cli) {
        Ok(code) => code,
        Err(error) => {
            ui::fail(&error);
            if interrupt::requested() { ExitCode::from(130) } else { ExitCode::FAILURE }
        }
    }
}

fn dispatch(cli: Cli) -> Result<ExitCode> {
    let command = match cli.command {
        // Programs of the lab keep the usual effect of signals.
        Command::Hidden(hidden) => {
            return run_hidden(&Layout::new(&cli.dir)?, hidden).map(|()| ExitCode::SUCCESS);
        }
        other => other,
    };
    interrupt::listen()?;
    let layout = Layout::new(&cli.dir)?;
    match command {
        Command::Up(args) => run_up(&layout, &args)?,
        Command::Down => run_down(&layout)?,
        Command::Status(args) => {
            let seen = status::look(&Store::open(&layout)?);
            if args.json {
                ui::json(&seen)?
            } else {
                status::print(&seen)?
            }
            return Ok(code(seen.healthy));
        }
        Command::Matrix(args) => {
            preflight::root()?;
            let seen = matrix::run(&Store::open(&layout)?)?;
            if args.json {
                ui::json(&seen)?
            } else {
                matrix::print(&seen)
            }
            return Ok(code(seen.n_failed == 0));
        }
        Command::Node(args) => return run_node(&layout, args.command),
        Command::Ovs(args) => return run_ovs(&layout, &args.node, &args.command),
        Command::Pod(args) => return run_pod(&layout, args.command),
        Command::Check(args) => return run_check(&layout, &args),
        Command::Demo(args) => return run_demo(&layout, &args),
        Command::Trace(args) => {
            let store = Store::open(&layout)?;
            let seen = trace::run(&store, &args.source, &args.destination, args.port)?;
            if args.json { ui::json(&seen)? } else { trace::print(&seen) }
        }
        Command::Bench(args) => {
            preflight::root()?;
            let figures =
                bench::run(layout.dir(), bin_dir(args.bin_dir.as_deref())?, &Progress::start())?;
            if args.json { ui::json(&figures)? } else { bench::print(&figures) }
        }
        Command::Hidden(_) => {}
    }
    Ok(ExitCode::SUCCESS)
}

fn run_hidden(layout: &Layout, command: Hidden) -> Result<()> {
    match command {
        Hidden::PodServer { name, port } => pod_server::run(&name, port),
        Hidden::Apiserver => cluster::api::run(layout),
        Hidden::Scheduler => cluster::scheduler::run(layout),
        Hidden::Kubelet { node, address } => {
            let kubeconfig = layout.node(&node).kubeconfig(cluster::ROLE_KUBELET);
            kubelet::run(KubeletOptions { layout: layout.clone(), node, address, kubeconfig })
        }
        Hidden::ContainerRun { container } => container::keep(&container),
    }
}

/// What `up` says at its end.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct UpReport {
    dir: String,
    nodes: Vec<String>,
    kubeconfig: Option<String>,
    seconds: Option<f64>,
}

fn run_up(layout: &Layout, args: &UpArgs) -> Result<()> {
    preflight::root()?;
    let options = up_options(args)?;
    let progress = Progress::start();
    let _lock = state::lock(layout)?;
    let store = up::run(layout, &options, &progress)?;
    store.let_go()?;
    let state = store.get();
    let report = UpReport {
        dir: layout.dir().display().to_string(),
        nodes: state.nodes.iter().map(|n| n.name.clone()).collect(),
        kubeconfig: status::kubeconfig(&store),
        seconds: state.up_seconds,
    };
    if args.json {
        return ui::json(&report);
    }
    match &report.kubeconfig {
        Some(path) => ui::line(format!("export KUBECONFIG={path}")),
        None => ui::line(format!(
            "no API server: make Pods with {}",
            layout.command("pod add NODE NAME")
        )),
    }
    Ok(())
}

/// What `up` is asked for, refused by name where this version cannot do it.
///
/// # Errors
/// When an option has a value that is not built yet.
pub fn up_options(args: &UpArgs) -> Result<UpOptions> {
    let refused = |option: &str, only: &str| {
        Err(LabError::new(format!("{option} is not in this version"))
            .hint(format!("this version does {only}")))
    };
    match args.ip_family {
        IpFamily::Ipv4 => {}
        IpFamily::Ipv6 => return refused("--ip-family ipv6", "ipv4"),
        IpFamily::Dual => return refused("--ip-family dual", "ipv4"),
    }
    match args.tunnel {
        Tunnel::Geneve => {}
        Tunnel::Vxlan => return refused("--tunnel vxlan", "geneve"),
        Tunnel::Gre => return refused("--tunnel gre", "geneve"),
    }
    if args.datapath == Datapath::System {
        return refused("--datapath system", "netdev (auto means netdev in a lab)");
    }
    let bin_dir = bin_dir(args.bin_dir.as_deref())?;
    let kubeconfig = match &args.kubeconfig {
        Some(file) => {
            Some(file.canonicalize().doing(|| format!("--kubeconfig {}", file.display()))?)
        }
        None => None,
    };
    let mode = match (args.standalone, &kubeconfig) {
        (true, _) => Mode::Standalone,
        (false, None) => Mode::Cluster,
        (false, Some(_)) => Mode::External,
    };
    Ok(UpOptions {
        n_nodes: args.nodes,
        mode,
        bin_dir,
        kubeconfig,
        scheduler: if args.no_scheduler { SchedulerChoice::Theirs } else { SchedulerChoice::Ours },
        on_failure: if args.leave { OnFailure::Leave } else { OnFailure::Undo },
    })
}

fn bin_dir(named: Option<&std::path::Path>) -> Result<std::path::PathBuf> {
    match named {
        Some(dir) => dir.canonicalize().doing(|| format!("--bin-dir {}", dir.display())),
        None => up::default_bin_dir(),
    }
}

fn run_check(layout: &Layout, args: &CheckArgs) -> Result<ExitCode> {
    if args.list {
        let known = check::list();
        if args.json {
            let known: Vec<_> =
                known.iter().map(|(name, about)| json!({"name": name, "about": about})).collect();
            ui::json(&known)?;
        } else {
            let rows: Vec<_> =
                known.iter().map(|(n, a)| vec![(*n).to_owned(), (*a).to_owned()]).collect();
            ui::table(&rows);
        }
        return Ok(ExitCode::SUCCESS);
    }
    preflight::root()?;
    let bin_dir = bin_dir(args.bin_dir.as_deref())?;
    let rows = check::run(layout.dir(), &args.scenarios, bin_dir, &Progress::start())?;
    if args.json {
        ui::json(&rows)?
    } else {
        check::print(&rows)
    }
    Ok(code(rows.iter().all(|r| r.result != check::Verdict::Failed)))
}

fn run_demo(layout: &Layout, args: &DemoArgs) -> Result<ExitCode> {
    preflight::root()?;
    let options = up_options(&args.up)?;
    let progress = Progress::start();
    let _lock = state::lock(layout)?;
    let at_end = if args.keep { demo::AtEnd::Keep } else { demo::AtEnd::Down };
    let report = demo::run(layout, &options, at_end, &progress)?;
    if args.up.json {
        ui::json(&report)?
    } else {
        demo::print(&report)
    }
    if args.keep {
        ui::line("");
        ui::line(format!("the lab goes on; {} ends it", layout.command("down")));
        if let Some(path) = status::kubeconfig(&Store::open(layout)?) {
            ui::line(format!("export KUBECONFIG={path}"));
        }
    }
    Ok(code(report.matrix.n_failed == 0))
}

fn run_down(layout: &Layout) -> Result<()> {
    preflight::root()?;
    let progress = Progress::start();
    let opened = Store::open(layout);
    let store = match opened {
        Ok(store) => store,
        Err(error) => match Store::recover(layout)? {
            Some(store) => {
                ui::warn(format!("{}; ending what is left of it", error.chain()));
                store
            }
            None => return Err(error),
        },
    };
    let _lock = state::lock(layout)?;
    down::run(&store, &progress)?;
    progress.step("nothing is left");
    Ok(())
}

fn run_node(layout: &Layout, command: NodeCommand) -> Result<ExitCode> {
    preflight::root()?;
    let store = Store::open(layout)?;
    match command {
        NodeCommand::Exec { node, command } => {
            store.get().node(&node)?;
            exec_in(layout.node(&node).netns(), &command)
        }
        NodeCommand::Kill { node, component } => {
            kill(&store, &node, component)?;
            Ok(ExitCode::SUCCESS)
        }
        NodeCommand::Start { node, component } => {
            start(&store, &node, component)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Kills a component with SIGKILL and waits until it is gone.
///
/// # Errors
/// When it does not run.
pub fn kill(store: &Store, node: &str, component: NodeComponent) -> Result<()> {
    store.get().node(node)?;
    let role = role(component);
    let id = store
        .get()
        .process(role, Some(node))
        .filter(|id| id.is_alive())
        .ok_or_else(|| LabError::new(format!("{role} does not run on {node}")))?;
    id.signal(nix::sys::signal::Signal::SIGKILL);
    interrupt::wait_for(Duration::from_secs(5), &format!("{role} ends"), || {
        (!id.is_alive()).then_some(())
    })
}

/// Starts a component that does not run and waits until it answers.
///
/// # Errors
/// When it runs already, or does not come up.
pub fn start(store: &Store, node: &str, component: NodeComponent) -> Result<()> {
    store.get().node(node)?;
    let role = role(component);
    if store.get().process(role, Some(node)).is_some_and(ProcessId::is_alive) {
        return Err(LabError::new(format!("{role} runs on {node}")).hint(format!(
            "{} ends it",
            store.layout().command(&format!("node kill {node} {}", component.name()))
        )));
    }
    match component {
        NodeComponent::Agent => {
            agent::start(store, node)?;
            agent::await_ready(store, node)
        }
        NodeComponent::Vswitchd => ovs::start_vswitchd(store, node),
        NodeComponent::Ovsdb => ovs::start_ovsdb(store, node),
        NodeComponent::Kubelet if store.get().mode == Mode::Standalone => {
            Err(LabError::new("a lab without an API server has no kubelet"))
        }
        NodeComponent::Kubelet => cluster::start_kubelet(store, node),
    }
}

fn role(component: NodeComponent) -> &'static str {
    match component {
        NodeComponent::Agent => agent::ROLE,
        NodeComponent::Vswitchd => ovs::ROLE_VSWITCHD,
        NodeComponent::Ovsdb => ovs::ROLE_OVSDB,
        NodeComponent::Kubelet => cluster::ROLE_KUBELET,
    }
}

fn run_ovs(layout: &Layout, node: &str, command: &[String]) -> Result<ExitCode> {
    let store = Store::open(layout)?;
    store.get().node(node)?;
    let paths = layout.node(node);
    let [tool, args @ ..] = command else {
        return Err(LabError::new("no tool named").hint("for instance: -- ofctl dump-flows br-int"));
    };
    let mut program = ovs::tool(&paths, tool)?;
    // ovs-ofctl takes a bridge's socket where people write the bridge's name.
    let bridge = (tool == "ofctl").then_some(ovs::BRIDGE);
    for arg in args {
        match bridge {
            Some(name) if arg == name || arg == "br-phy" => {
                program.arg(format!("unix:{}", paths.mgmt(arg).display()));
            }
            _ => {
                program.arg(arg);
            }
        }
    }
    wait(&mut program)
}

fn run_pod(layout: &Layout, command: PodCommand) -> Result<ExitCode> {
    preflight::root()?;
    let store = Store::open(layout)?;
    match command {
        PodCommand::Add { node, name, namespace, json, command } => {
            let uid = format!("{namespace}-{name}-{}", jiff::Timestamp::now().as_millisecond());
            let pod = PodIdentity { namespace, name, uid };
            let command = (!command.is_empty()).then_some(command);
            let made = pods::add(&store, &node, &pod, command)?;
            if json {
                ui::json(&made)?;
            } else {
                let addresses: Vec<_> = made.addresses().iter().map(ToString::to_string).collect();
                ui::line(format!("{} on {node}: {}", pod.key(), addresses.join(", ")));
            }
        }
        PodCommand::Del { name } => {
            let sandbox = pods::find(&store, &name)?;
            pods::del(&store, &sandbox, Duration::from_secs(2))?;
            ui::line(format!("{} removed", sandbox.pod.key()));
        }
        PodCommand::List(args) => {
            let rows = pods::rows(&store);
            if args.json {
                ui::json(&rows)?;
            } else {
                let head = ["NAMESPACE", "NAME", "NODE", "ADDRESS", "PORT", "STATE"];
                let mut table = vec![head.map(str::to_owned).to_vec()];
                table.extend(rows.into_iter().map(|r| {
                    let state = match r.reason {
                        Some(reason) => format!("{}: {reason}", r.state),
                        None => r.state,
                    };
                    vec![
                        r.namespace,
                        r.name,
                        r.node,
                        r.addresses.join(", "),
                        r.port.unwrap_or_default(),
                        state,
                    ]
                }));
                ui::table(&table);
            }
        }
        PodCommand::Exec { name, command } => {
            let sandbox = pods::find(&store, &name)?;
            return exec_in(&sandbox.netns, &command);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs a command in a namespace with our terminal, and takes over its exit code.
fn exec_in(netns: &std::path::Path, command: &[String]) -> Result<ExitCode> {
    let [program, args @ ..] = command else { return Err(LabError::new("no command")) };
    let mut program = Program::new(program);
    program.args(args);
    let mut child =
        netns::enter(netns, || program.spawn())?.doing(|| format!("run {}", command[0]))?;
    let status = child.wait().doing(|| format!("wait for {}", command[0]))?;
    Ok(exit_code(status))
}

fn wait(program: &mut Program) -> Result<ExitCode> {
    let name = program.get_program().to_string_lossy().into_owned();
    let status = program.status().doing(|| format!("run {name}"))?;
    Ok(exit_code(status))
}

fn exit_code(status: std::process::ExitStatus) -> ExitCode {
    status.code().and_then(|c| u8::try_from(c).ok()).map_or(ExitCode::FAILURE, ExitCode::from)
}

fn code(good: bool) -> ExitCode {
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn what_is_not_built_yet_is_refused_by_name() {
        for (option, value) in [
            ("--ip-family", "ipv6"),
            ("--ip-family", "dual"),
            ("--tunnel", "vxlan"),
            ("--tunnel", "gre"),
            ("--datapath", "system"),
        ] {
            let cli = Cli::try_parse_from(["antrea-lab", "up", option, value]).unwrap();
            let Command::Up(args) = cli.command else { panic!("not up") };
            let error = up_options(&args).unwrap_err();
            assert!(error.to_string().contains(&format!("{option} {value}")), "{error}");
            assert!(error.next_step().is_some());
        }
    }
}
