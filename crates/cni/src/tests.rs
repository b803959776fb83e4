use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use cni_api::rpc::{Cni, CniCmdRequest, CniCmdResponse, CniServer};
use tokio::net::UnixListener;
use tonic::{Request, Response, Status};

use super::*;

const CONF: &str = r#"{"cniVersion":"1.1.0","name":"antrea","type":"antrea"}"#;

fn mk_env(command: &str) -> BTreeMap<&'static str, String> {
    BTreeMap::from([
        ("CNI_COMMAND", command.to_owned()),
        ("CNI_CONTAINERID", "c1".to_owned()),
        ("CNI_IFNAME", "eth0".to_owned()),
        ("CNI_NETNS", "/run/netns/p".to_owned()),
        ("CNI_PATH", "/opt/cni/bin".to_owned()),
        (SOCKET_VARIABLE, "/nonexistent/cni.sock".to_owned()),
    ])
}

fn run_with(env: &BTreeMap<&'static str, String>, stdin: &str) -> Outcome {
    run(|name| env.get(name).cloned(), Ok(stdin.as_bytes().to_vec()))
}

#[track_caller]
fn check_error(outcome: &Outcome, code: Code, words: &str) {
    assert!(!outcome.succeeded);
    let error: CniError = serde_json::from_slice(&outcome.stdout).unwrap();
    assert_eq!(error.code, code, "{error:?}");
    assert!(error.msg.contains(words), "{error:?} lacks {words:?}");
}

#[test]
fn version_needs_no_agent() {
    let outcome = run_with(&mk_env("VERSION"), r#"{"cniVersion":"0.4.0"}"#);
    assert!(outcome.succeeded);
    let reply: VersionReply = serde_json::from_slice(&outcome.stdout).unwrap();
    assert_eq!(reply, VersionReply::to("0.4.0"));
}

#[test]
fn version_needs_no_configuration() {
    for stdin in ["", "\n", " \t\n"] {
        let outcome = run_with(&mk_env("VERSION"), stdin);
        assert!(outcome.succeeded, "{stdin:?}");
        let reply: VersionReply = serde_json::from_slice(&outcome.stdout).unwrap();
        assert_eq!(reply, VersionReply::to(""), "{stdin:?}");
    }
}

#[test]
fn malformed_stdin_is_code_6() {
    for bad in ["", "{", "null", "[1]", "\u{0}", r#"{"cniVersion": 3}"#, r#"{"ipam": "x"}"#] {
        let commands = ["ADD", "DEL", "VERSION"];
        // VERSION alone is answered without a configuration.
        for command in commands.into_iter().filter(|c| *c != "VERSION" || !bad.is_empty()) {
            check_error(&run_with(&mk_env(command), bad), Code::DECODING_FAILURE, "standard input");
        }
    }
    let unreadable = run(|name| mk_env("ADD").get(name).cloned(), Err(io::ErrorKind::Other.into()));
    check_error(&unreadable, Code::IO_FAILURE, "read standard input");
}

#[test]
fn a_missing_or_wrong_variable_is_code_4_and_named() {
    for (command, name) in [
        ("ADD", "CNI_COMMAND"),
        ("ADD", "CNI_CONTAINERID"),
        ("ADD", "CNI_IFNAME"),
        ("ADD", "CNI_NETNS"),
        ("ADD", "CNI_PATH"),
        ("CHECK", "CNI_NETNS"),
        ("DEL", "CNI_CONTAINERID"),
        ("GC", "CNI_PATH"),
    ] {
        for missing in [None, Some(String::new())] {
            let mut env = mk_env(command);
            env.remove(name);
            env.extend(missing.map(|empty| (name, empty)));
            check_error(&run_with(&env, CONF), Code::INVALID_ENVIRONMENT, name);
        }
    }
    for (name, bad) in
        [("CNI_COMMAND", "add"), ("CNI_CONTAINERID", "../x"), ("CNI_IFNAME", "sixteen-bytes-xx")]
    {
        let mut env = mk_env("ADD");
        env.insert(name, bad.into());
        check_error(&run_with(&env, CONF), Code::INVALID_ENVIRONMENT, bad);
    }
}

#[test]
fn a_configuration_that_cannot_be_meant_is_code_7_except_to_del() {
    for (conf, words) in [
        (r#"{"cniVersion":"1.1.0","mtu":99999}"#, "mtu 99999"),
        (r#"{"cniVersion":"1.1.0","cniSocke":"/x"}"#, "\"cniSocket\" is meant"),
    ] {
        check_error(&run_with(&mk_env("ADD"), conf), Code::INVALID_NETWORK_CONFIG, words);
        check_error(&run_with(&mk_env("DEL"), conf), Code::TRY_AGAIN_LATER, "does not answer");
    }
}

#[test]
fn who_calls_by_hand_is_told_what_it_is() {
    assert!(answer_to("--version").unwrap().contains(env!("CARGO_PKG_VERSION")));
    let help = answer_to("--help").unwrap();
    for word in ["usage:", "CNI_COMMAND", DEFAULT_SOCKET, SOCKET_VARIABLE] {
        assert!(help.contains(word), "{help}");
    }
    assert_eq!(answer_to("--hepl"), None);
}

#[test]
fn versions_and_verbs_must_fit() {
    let refused = |command, version: &str| {
        let conf = format!(r#"{{"cniVersion":"{version}"}}"#);
        check_error(&run_with(&mk_env(command), &conf), Code::INCOMPATIBLE_CNI_VERSION, version);
    };
    refused("ADD", "3.0.0");
    refused("CHECK", "0.3.1");
    refused("GC", "1.0.0");
    refused("STATUS", "1.0.0");
}

#[test]
fn an_agent_that_is_away_is_code_11_and_the_version_is_repeated() {
    for command in ["ADD", "DEL", "CHECK", "GC"] {
        let outcome = run_with(&mk_env(command), CONF);
        check_error(&outcome, Code::TRY_AGAIN_LATER, "/nonexistent/cni.sock: No such file");
        let error: CniError = serde_json::from_slice(&outcome.stdout).unwrap();
        assert_eq!(error.cni_version, "1.1.0");
    }
    let mut env = mk_env("DEL");
    env.remove("CNI_NETNS");
    check_error(&run_with(&env, CONF), Code::TRY_AGAIN_LATER, "does not answer");
    check_error(&run_with(&mk_env("STATUS"), CONF), Code::PLUGIN_NOT_AVAILABLE, "does not answer");
}

/// Answers ADD with its own request, DEL with an error, and leaves the rest unimplemented.
#[derive(Default)]
struct TinyAgent {
    seen: Arc<Mutex<Vec<CniCmdRequest>>>,
}

#[tonic::async_trait]
impl Cni for TinyAgent {
    async fn cmd_add(
        &self,
        request: Request<CniCmdRequest>,
    ) -> Result<Response<CniCmdResponse>, Status> {
        self.seen.lock().unwrap().push(request.into_inner());
        Ok(Response::new(CniCmdResponse::success(b"{\"ips\":[]}".to_vec())))
    }

    async fn cmd_del(&self, _: Request<CniCmdRequest>) -> Result<Response<CniCmdResponse>, Status> {
        Ok(Response::new(CniCmdResponse::failure(Code::IPAM_FAILURE, "no address left")))
    }

    async fn cmd_check(
        &self,
        _: Request<CniCmdRequest>,
    ) -> Result<Response<CniCmdResponse>, Status> {
        Err(Status::internal("broken"))
    }

    async fn cmd_gc(&self, _: Request<CniCmdRequest>) -> Result<Response<CniCmdResponse>, Status> {
        Err(Status::unimplemented("no gc"))
    }

    async fn cmd_status(
        &self,
        _: Request<CniCmdRequest>,
    ) -> Result<Response<CniCmdResponse>, Status> {
        Err(Status::unavailable("going down"))
    }
}

#[test]
fn the_agents_answer_is_printed() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("cni.sock");
    let agent = TinyAgent::default();
    let seen = Arc::clone(&agent.seen);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let listener = {
        let _inside = runtime.enter();
        UnixListener::bind(&socket).unwrap()
    };
    let incoming = tokio_stream_of(listener);
    let server = tonic::transport::Server::builder().add_service(CniServer::new(agent));
    runtime.spawn(server.serve_with_incoming(incoming));

    let mut env = mk_env("ADD");
    env.insert(SOCKET_VARIABLE, socket.display().to_string());
    env.insert("CNI_ARGS", "K8S_POD_NAME=web-0".into());
    let added = run_with(&env, CONF);
    assert_eq!(added, Outcome { stdout: b"{\"ips\":[]}".to_vec(), succeeded: true });
    let args = seen.lock().unwrap()[0].cni_args.clone().unwrap();
    assert_eq!(args.container_id, "c1");
    assert_eq!(args.netns, "/run/netns/p");
    assert_eq!(args.ifname, "eth0");
    assert_eq!(args.args, "K8S_POD_NAME=web-0");
    assert_eq!(args.path, "/opt/cni/bin");
    assert_eq!(args.network_configuration, CONF.as_bytes());

    // The socket may also be named in the configuration.
    env.remove(SOCKET_VARIABLE);
    let conf = format!(r#"{{"cniVersion":"1.1.0","cniSocket":"{}"}}"#, socket.display());
    assert!(run_with(&env, &conf).succeeded);

    for (command, code, words) in [
        ("DEL", Code::IPAM_FAILURE, "no address left"),
        ("CHECK", Code::UNKNOWN_RPC_ERROR, "broken"),
        ("GC", Code::INCOMPATIBLE_API_VERSION, "no gc"),
        ("STATUS", Code::PLUGIN_NOT_AVAILABLE, "going down"),
    ] {
        env.insert("CNI_COMMAND", command.into());
        check_error(&run_with(&env, &conf), code, words);
    }
}

fn tokio_stream_of(
    listener: UnixListener,
) -> impl futures::Stream<Item = io::Result<tokio::net::UnixStream>> {
    futures::stream::unfold(listener, async |listener| {
        let stream = listener.accept().await.map(|(stream, _)| stream);
        Some((stream, listener))
    })
}
