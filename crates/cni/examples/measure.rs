//! Times the plugin against an agent that answers at once.
//!
//! `cargo run -p antrea-cni --example measure -- PATH-OF-ANTREA-CNI [RUNS]` prints the time of one
//! whole process (median, 95th percentile, maximum) and its largest resident size, which the
//! little server reads from /proc while the plugin waits for its answer.

#![allow(clippy::print_stdout, reason = "reports on stdout")]

use std::error::Error;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cni_api::rpc::{Cni, CniCmdRequest, CniCmdResponse, CniServer};
use tokio::net::UnixListener;
use tonic::transport::server::UdsConnectInfo;
use tonic::{Request, Response, Status};

const CONF: &[u8] = br#"{"cniVersion":"0.3.0","name":"antrea","type":"antrea",
    "ipam":{"type":"host-local"}}"#;
const RESULT: &[u8] = br#"{"cniVersion":"0.3.0","interfaces":[{"name":"web-0-1f3c5a",
    "mac":"5e:41:0a:4d:01:05"},{"name":"eth0","mac":"5e:41:0a:4d:01:05","sandbox":"/run/netns/p"}],
    "ips":[{"version":"4","interface":1,"address":"10.77.1.5/24","gateway":"10.77.1.1"}],
    "routes":[{"dst":"0.0.0.0/0","gw":"10.77.1.1"}],"dns":{}}"#;

/// Answers every request with one result.
struct AtOnce {
    peak_kib: Arc<AtomicU64>,
}

type Answer = Result<Response<CniCmdResponse>, Status>;

#[tonic::async_trait]
impl Cni for AtOnce {
    async fn cmd_add(&self, request: Request<CniCmdRequest>) -> Answer {
        let pid = request
            .extensions()
            .get::<UdsConnectInfo>()
            .and_then(|info| info.peer_cred)
            .and_then(|cred| cred.pid());
        if let Some(kib) = pid.and_then(peak_rss_kib) {
            self.peak_kib.fetch_max(kib, Ordering::Relaxed);
        }
        Ok(Response::new(CniCmdResponse::success(RESULT.to_vec())))
    }

    async fn cmd_check(&self, _: Request<CniCmdRequest>) -> Answer {
        Err(Status::unimplemented("only ADD is measured"))
    }

    async fn cmd_del(&self, _: Request<CniCmdRequest>) -> Answer {
        Err(Status::unimplemented("only ADD is measured"))
    }

    async fn cmd_gc(&self, _: Request<CniCmdRequest>) -> Answer {
        Err(Status::unimplemented("only ADD is measured"))
    }

    async fn cmd_status(&self, _: Request<CniCmdRequest>) -> Answer {
        Err(Status::unimplemented("only ADD is measured"))
    }
}

fn peak_rss_kib(pid: i32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let binary = args.next().ok_or("give the path of antrea-cni")?;
    let n_runs: usize = args.next().map_or(Ok(1500), |text| text.parse())?;

    let dir = std::env::temp_dir().join(format!("antrea-cni-measure-{}", std::process::id()));
    std::fs::create_dir(&dir)?;
    let measured = measure(&binary, n_runs, &dir.join("cni.sock"));
    std::fs::remove_dir_all(&dir)?;
    let (mut times, peak_kib) = measured?;

    times.sort_unstable();
    let at = |percent: usize| {
        let index = (times.len() * percent / 100).min(times.len().saturating_sub(1));
        times.get(index).map_or(0.0, |time| time.as_secs_f64() * 1e3)
    };
    println!(
        "{n_runs} runs: median {:.2} ms, p95 {:.2} ms, max {:.2} ms; largest resident {peak_kib} KiB",
        at(50),
        at(95),
        at(100),
    );
    Ok(())
}

fn measure(
    binary: &str,
    n_runs: usize,
    socket: &Path,
) -> Result<(Vec<Duration>, u64), Box<dyn Error>> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let listener = {
        let _inside = runtime.enter();
        UnixListener::bind(socket)?
    };
    let incoming = futures::stream::unfold(listener, async |listener| {
        let stream = listener.accept().await.map(|(stream, _)| stream);
        Some((stream, listener))
    });
    let peak_kib = Arc::new(AtomicU64::new(0));
    let agent = AtOnce { peak_kib: Arc::clone(&peak_kib) };
    let server = tonic::transport::Server::builder().add_service(CniServer::new(agent));
    runtime.spawn(server.serve_with_incoming(incoming));

    let mut times = Vec::with_capacity(n_runs);
    for _ in 0..n_runs {
        let started = Instant::now();
        let mut child = Command::new(binary)
            .env_clear()
            .env("CNI_COMMAND", "ADD")
            .env("CNI_CONTAINERID", "c1")
            .env("CNI_IFNAME", "eth0")
            .env("CNI_NETNS", "/run/netns/p")
            .env("CNI_PATH", "/opt/cni/bin")
            .env("ANTREA_CNI_SOCKET", socket)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()?;
        child.stdin.take().ok_or("no standard input")?.write_all(CONF)?;
        let status = child.wait()?;
        times.push(started.elapsed());
        if !status.success() {
            return Err(format!("{binary}: {status}").into());
        }
    }
    Ok((times, peak_kib.load(Ordering::Relaxed)))
}
