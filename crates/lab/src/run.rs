//! From a parsed command line to its effect and the process' exit code.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command as Program, ExitCode};
use std::time::Duration;

use serde::Serialize;
use serde_json::json;

use crate::check::Kubernetes;
use crate::cli::{
    BenchWhat, CheckArgs, Cli, Command, ComponentCommand, DatapathChoice, DemoArgs, Hidden,
    JsonArgs, NodeCommand, PodCommand, UpArgs,
};
use crate::cluster;
use crate::container;
use crate::error::{Doing, LabError, Result};
use crate::kubelet::{self, KubeletOptions, Serve};
use crate::layout::Layout;
use crate::sandbox::PodIdentity;
use crate::state::{self, Mode, NodeIpam, Proxy, SchedulerChoice, Store};
use crate::ui::{self, Progress};
use crate::up::{OnFailure, UpOptions};
use crate::variant::{Datapath, IPV6_MTU, IpFamily, Tunnel, Variant};
use crate::{
    bench, check, component, demo, down, interrupt, matrix, netns, ovs, pod_server, pods,
    preflight, quote, status, trace, up,
};

/// Runs a command; failures are shown with what to do next.
#[must_use]
pub fn main(cli: Cli) -> ExitCode {
    match dispatch(cli) {
        Ok(code) => code,
        Err(error) => {
            ui::fail(&interrupt::explain(error));
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
        Command::Down(args) => run_down(&layout, &args)?,
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
        Command::Component(args) => run_component(&layout, args.command)?,
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
            let bin_dir = bin_dir(args.bin_dir.as_deref())?;
            let (dir, progress) = (layout.dir(), Progress::start());
            let figures = match args.what {
                BenchWhat::Network => bench::run(dir, bin_dir, &progress),
                BenchWhat::Policy => bench::policy::run(dir, bin_dir, &progress),
                BenchWhat::Services => bench::services::run(dir, bin_dir, &progress),
                BenchWhat::Load => bench::load::run(dir, bin_dir, &progress),
                BenchWhat::Scale => bench::scale::run(dir, bin_dir, args.namespaces, &progress),
            }?;
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
        Hidden::Kubelet { node, addresses, renew_every, serve } => {
            let kubeconfig = layout.node(&node).kubeconfig(cluster::ROLE_KUBELET);
            let (layout, renew_every) = (layout.clone(), Duration::from_millis(renew_every));
            let serve = if serve { Serve::Everywhere } else { Serve::Socket };
            kubelet::run(KubeletOptions { layout, node, addresses, kubeconfig, renew_every, serve })
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
        Some(path) => ui::line(format!("export KUBECONFIG={}", quote::word(path))),
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
    let datapath = match args.datapath {
        DatapathChoice::Auto => Datapath::here(),
        DatapathChoice::Netdev => Datapath::Netdev,
        DatapathChoice::System => Datapath::System,
    };
    if let Some(obstacle) = datapath.obstacle() {
        return Err(LabError::new(format!("--datapath {}: {obstacle}", datapath.name()))
            .hint("modprobe openvswitch, or --datapath auto, which takes what there is"));
    }
    let variant = Variant { family: args.ip_family, tunnel: args.tunnel, datapath };
    if let Some(least) = variant.least_mtu().filter(|least| args.underlay_mtu < *least) {
        return Err(LabError::new(format!(
            "--underlay-mtu {}: {} bytes are left for Pods, and IPv6 needs {IPV6_MTU}",
            args.underlay_mtu,
            args.underlay_mtu - (least - IPV6_MTU)
        ))
        .hint(format!(
            "with --ip-family {} and --tunnel {} the least that works is --underlay-mtu {least}",
            variant.family.name(),
            variant.tunnel.name()
        )));
    }
    let bin_dir = bin_dir(args.bin_dir.as_deref())?;
    let kubeconfig = args.kubeconfig.as_deref().map(usable).transpose()?;
    let mode = match (args.standalone, &kubeconfig) {
        (true, _) => Mode::Standalone,
        (false, None) => Mode::Cluster,
        (false, Some(_)) => Mode::External,
    };
    Ok(UpOptions {
        kubeconfig,
        egress_socket: args.egress_socket.as_deref().map(absolute).transpose()?,
        scheduler: if args.no_scheduler { SchedulerChoice::Theirs } else { SchedulerChoice::Ours },
        on_failure: if args.leave { OnFailure::Leave } else { OnFailure::Undo },
        underlay_mtu: args.underlay_mtu,
        node_grace: Duration::from_secs(args.node_grace.into()),
        n_controllers: args.controllers,
        proxy: if args.proxy_all { Proxy::All } else { Proxy::Pods },
        node_ipam: if args.no_node_ipam { NodeIpam::Theirs } else { NodeIpam::Ours },
        ..UpOptions::new(args.nodes, variant, mode, bin_dir)
    })
}

fn bin_dir(named: Option<&std::path::Path>) -> Result<std::path::PathBuf> {
    match named {
        Some(dir) => dir
            .canonicalize()
            .doing(|| format!("--bin-dir {}", dir.display()))
            .map_err(|e| e.hint("make build puts all programs into target/release")),
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
    let variants = variants(args);
    let kubernetes = match &args.kubeconfig {
        Some(file) => Some(Kubernetes {
            kubeconfig: usable(file)?,
            egress_socket: args.egress_socket.as_deref().map(absolute).transpose()?,
            pid_file: args.api_server_pid.clone(),
        }),
        None => None,
    };
    let (dir, progress) = (layout.dir(), Progress::start());
    let kubernetes = kubernetes.as_ref();
    let rows = check::run(dir, &args.scenarios, &variants, kubernetes, bin_dir, &progress)?;
    if args.json {
        ui::json(&rows)?
    } else {
        check::print(&rows)
    }
    interrupt::check()?;
    Ok(code(rows.iter().all(check::Row::is_as_expected)))
}

fn absolute(file: &std::path::Path) -> Result<std::path::PathBuf> {
    std::path::absolute(file).doing(|| format!("find {}", file.display()))
}

/// The whole path of a kubeconfig with which a cluster can be reached.
fn usable(file: &std::path::Path) -> Result<std::path::PathBuf> {
    let usable = file.canonicalize().doing(|| "find it".into()).and_then(|whole| {
        cluster::api::current_cluster(&whole)?;
        Ok(whole)
    });
    let advice = "name a kubeconfig with which kubectl reaches the cluster";
    usable.doing(|| format!("--kubeconfig {}", file.display())).map_err(|e| e.hint(advice))
}

/// The kinds of labs that are checked, the plainest first.
fn variants(args: &CheckArgs) -> Vec<Variant> {
    use clap::ValueEnum;
    let (mut families, mut tunnels, mut datapaths) =
        (args.ip_family.clone(), args.tunnel.clone(), args.datapath.clone());
    if args.all {
        families = IpFamily::value_variants().to_vec();
        tunnels = Tunnel::value_variants().to_vec();
        datapaths = Datapath::value_variants().to_vec();
    }
    let mut all = Vec::new();
    for datapath in datapaths {
        for tunnel in &tunnels {
            for family in &families {
                let variant = Variant { family: *family, tunnel: *tunnel, datapath };
                if !all.contains(&variant) {
                    all.push(variant);
                }
            }
        }
    }
    all
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
        let goes_on = format!("the lab goes on; {} ends it", layout.command("down"));
        let export = status::kubeconfig(&Store::open(layout)?)
            .map(|path| format!("export KUBECONFIG={}", quote::word(&path)));
        if args.up.json {
            // Standard output is the report and nothing else.
            progress.step(&goes_on);
            export.iter().for_each(|line| progress.step(line));
        } else {
            ui::line(format!("\n{goes_on}"));
            export.iter().for_each(ui::line);
        }
    }
    Ok(code(report.matrix.n_failed == 0))
}

fn run_down(layout: &Layout, args: &JsonArgs) -> Result<()> {
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
    if args.json {
        let dir = layout.dir().display().to_string();
        ui::json(&json!({ "dir": dir, "ended": true, "seconds": progress.seconds() }))?;
    }
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
        NodeCommand::Stop { node, component } => {
            component::stop(&store, &node, component)?;
            Ok(ExitCode::SUCCESS)
        }
        NodeCommand::Kill { node, component } => {
            component::kill(&store, &node, component)?;
            Ok(ExitCode::SUCCESS)
        }
        NodeCommand::Start { node, component } => {
            component::start(&store, &node, component)?;
            Ok(ExitCode::SUCCESS)
        }
        NodeCommand::Reboot { node } => {
            component::reboot(&store, &node)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn run_component(layout: &Layout, command: ComponentCommand) -> Result<()> {
    preflight::root()?;
    let store = Store::open(layout)?;
    match command {
        ComponentCommand::Stop { component } => component::stop_cluster(&store, component),
        ComponentCommand::Kill { component } => component::kill_cluster(&store, component),
        ComponentCommand::Start { component } => component::start_cluster(&store, component),
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
    let run = || program.spawn().doing(|| format!("run {}", command[0]));
    let mut child = netns::enter_with_sys(netns, run)?;
    let status = child.wait().doing(|| format!("wait for {}", command[0]))?;
    Ok(exit_code(status))
}

fn wait(program: &mut Program) -> Result<ExitCode> {
    let name = program.get_program().to_string_lossy().into_owned();
    let status = program.status().doing(|| format!("run {name}"))?;
    Ok(exit_code(status))
}

fn exit_code(status: std::process::ExitStatus) -> ExitCode {
    // As shells have it: 128 and the signal that ended it.
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    code.and_then(|c| u8::try_from(c).ok()).map_or(ExitCode::FAILURE, ExitCode::from)
}

fn code(good: bool) -> ExitCode {
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn auto_takes_the_datapath_of_the_kernel_if_it_has_one() {
        let Command::Up(args) = Cli::try_parse_from(["antrea-lab", "up"]).unwrap().command else {
            panic!("not up")
        };
        let has_module = std::path::Path::new("/sys/module/openvswitch").exists();
        let want = if has_module { Datapath::System } else { Datapath::Netdev };
        assert_eq!(up_options(&args).unwrap().variant.datapath, want);
    }

    #[test]
    fn what_a_lab_cannot_have_here_is_refused_by_name() {
        let line = ["antrea-lab", "up", "--datapath", "system"];
        let Command::Up(args) = Cli::try_parse_from(line).unwrap().command else {
            panic!("not up")
        };
        let Err(error) = up_options(&args) else {
            assert_eq!(Datapath::System.obstacle(), None);
            return;
        };
        assert!(error.to_string().contains("--datapath system"), "{error}");
        assert!(error.next_step().is_some());
    }

    #[test]
    fn a_command_ended_by_a_signal_has_the_status_that_shells_give_it() {
        for (script, want) in [("kill -9 $$", 137), ("exit 3", 3), ("true", 0)] {
            let status = wait(Program::new("/bin/sh").args(["-c", script])).unwrap();
            assert_eq!(status, ExitCode::from(want), "{script}");
        }
    }

    #[track_caller]
    fn refused(options: &[&str]) -> (String, String) {
        let line = ["antrea-lab", "up"].iter().chain(options);
        let Command::Up(args) = Cli::try_parse_from(line).unwrap().command else {
            panic!("not up")
        };
        let error = up_options(&args).unwrap_err();
        (error.chain(), error.next_step().unwrap_or_default().to_owned())
    }

    #[test]
    fn too_small_links_for_ipv6_are_refused_with_the_least_that_works() {
        for (family, tunnel, mtu, least) in
            [("dual", "geneve", "1280", "1330"), ("ipv6", "gre", "1341", "1342")]
        {
            let options = ["--ip-family", family, "--tunnel", tunnel, "--underlay-mtu", mtu];
            let (error, hint) = refused(&options);
            assert!(error.contains(&format!("--underlay-mtu {mtu}")), "{error}");
            assert!(hint.ends_with(&format!("--underlay-mtu {least}")), "{hint}");
        }
        let line = ["antrea-lab", "up", "--ip-family", "dual", "--underlay-mtu", "1330"];
        let Command::Up(args) = Cli::try_parse_from(line).unwrap().command else {
            panic!("not up")
        };
        assert!(up_options(&args).is_ok());
    }

    #[test]
    fn a_kubeconfig_that_cannot_be_used_is_named_before_anything_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let broken = dir.path().join("config");
        std::fs::write(&broken, "clusters: [").unwrap();
        for file in [broken.display().to_string(), "/nonexist".into()] {
            let (error, hint) = refused(&["--kubeconfig", &file]);
            assert!(error.contains(&format!("--kubeconfig {file}")), "{error}");
            assert!(hint.contains("kubectl"), "{hint}");
        }
    }
}
