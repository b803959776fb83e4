//! `kubectl exec`: a command in the Pod's namespace, its streams over a WebSocket.
//!
//! Speaks `v5.channel.k8s.io` and `v4.channel.k8s.io`: the first byte of a message names the
//! channel. With a terminal the command gets a pty as its controlling terminal.

use std::os::fd::OwnedFd;
use std::process::Stdio;

use futures::{SinkExt, StreamExt};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::Utf8Bytes;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role};

use crate::container::ContainerSpec;
use crate::error::{Doing, Result};
use crate::netns;
use crate::sandbox::Sandbox;

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;
const RESIZE: u8 = 4;
const CLOSE: u8 = 255;

/// kubectl takes an end without a code for a broken connection.
const NORMAL: CloseFrame =
    CloseFrame { code: CloseCode::Normal, reason: Utf8Bytes::from_static("") };

/// What is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ExecQuery {
    /// Program and arguments.
    pub(super) command: Vec<String>,
    /// Whether the client sends input.
    pub(super) stdin: bool,
    /// Whether the command gets a terminal.
    pub(super) tty: bool,
}

impl ExecQuery {
    /// Reads the query of a request.
    pub(super) fn parse(pairs: &[(String, String)]) -> Self {
        let yes =
            |key: &str| pairs.iter().any(|(k, v)| k == key && matches!(v.as_str(), "true" | "1"));
        Self {
            command: pairs.iter().filter(|(k, _)| k == "command").map(|(_, v)| v.clone()).collect(),
            stdin: yes("stdin") || yes("input"),
            tty: yes("tty"),
        }
    }
}

/// The newest protocol that both sides speak.
pub(super) fn choose_protocol(offered: &str) -> Option<&'static str> {
    let offered: Vec<&str> = offered.split(',').map(str::trim).collect();
    ["v5.channel.k8s.io", "v4.channel.k8s.io"].into_iter().find(|known| offered.contains(known))
}

/// A command with its streams.
struct Process {
    child: Child,
    input: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    outputs: Vec<(u8, Box<dyn AsyncRead + Send + Unpin>)>,
    /// Where a terminal's size is set.
    terminal: Option<String>,
}

/// Runs the command and carries its streams until it ends or the client goes.
pub(super) async fn serve(
    upgraded: Upgraded,
    sandbox: Sandbox,
    spec: ContainerSpec,
    query: ExecQuery,
) {
    let io = TokioIo::new(upgraded);
    let socket = WebSocketStream::from_raw_socket(io, Role::Server, None).await;
    let (mut tx, mut rx) = socket.split();
    let mut process = match start(&sandbox, &spec, &query) {
        Ok(process) => process,
        Err(error) => {
            let status = failure(&error.chain(), "InternalError", 500);
            let _ = tx.send(on_channel(ERROR, status.to_string().as_bytes())).await;
            let _ = tx.send(Message::Close(Some(NORMAL))).await;
            let _ = tx.close().await;
            return;
        }
    };
    let (out_tx, mut out_rx) = mpsc::channel::<Message>(16);
    for (channel, output) in process.outputs.drain(..) {
        tokio::spawn(copy_output(channel, output, out_tx.clone()));
    }
    drop(out_tx);
    let mut input = process.input.take();
    let mut outputs_open = true;
    let mut client_there = true;
    let status = loop {
        tokio::select! {
            piece = out_rx.recv(), if outputs_open => match piece {
                Some(piece) => {
                    if tx.send(piece).await.is_err() {
                        client_there = false;
                    }
                }
                None => outputs_open = false,
            },
            message = rx.next(), if client_there => match message {
                Some(Ok(Message::Binary(bytes))) => {
                    from_client(&bytes, &mut input, process.terminal.as_deref()).await;
                }
                Some(Ok(Message::Ping(bytes))) => {
                    let _ = tx.send(Message::Pong(bytes)).await;
                }
                Some(Ok(Message::Close(_)) | Err(_)) | None => client_there = false,
                Some(Ok(_)) => {}
            },
            status = process.child.wait(), if !outputs_open || !client_there => break status,
        }
        if !client_there {
            // Nobody reads any more: the command's group ends with its client.
            if let Some(pid) = process.child.id().and_then(|p| i32::try_from(p).ok()) {
                let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
            }
            let _ = process.child.start_kill();
        }
    };
    let status = match status {
        Ok(status) if status.success() => json!({"metadata": {}, "status": "Success"}),
        Ok(status) => {
            use std::os::unix::process::ExitStatusExt;
            let code = status.code().or(status.signal().map(|s| 128 + s)).unwrap_or(-1);
            let mut status = failure(
                &format!("command terminated with non-zero exit code: exit status {code}"),
                "NonZeroExitCode",
                500,
            );
            status["details"] =
                json!({"causes": [{"reason": "ExitCode", "message": code.to_string()}]});
            // The answer of container runtimes has no HTTP code here.
            status.as_object_mut().map(|s| s.remove("code"));
            status
        }
        Err(error) => failure(&error.to_string(), "InternalError", 500),
    };
    let _ = tx.send(on_channel(ERROR, status.to_string().as_bytes())).await;
    let _ = tx.send(Message::Close(Some(NORMAL))).await;
    let _ = tx.close().await;
}

async fn from_client(
    bytes: &[u8],
    input: &mut Option<Box<dyn AsyncWrite + Send + Unpin>>,
    terminal: Option<&str>,
) {
    match bytes {
        [STDIN, data @ ..] => {
            if let Some(pipe) = input
                && (pipe.write_all(data).await.is_err() || pipe.flush().await.is_err())
            {
                *input = None;
            }
        }
        // A terminal has no end of input: what ends it is typed.
        [CLOSE, STDIN, ..] if terminal.is_none() => *input = None,
        [RESIZE, size @ ..] => {
            if let (Some(path), Ok(size)) = (terminal, serde_json::from_slice::<Value>(size)) {
                set_size(path, &size).await;
            }
        }
        _ => {}
    }
}

/// Sets a terminal's size by the machine's own tool.
async fn set_size(path: &str, size: &Value) {
    let (Some(width), Some(height)) = (size["Width"].as_u64(), size["Height"].as_u64()) else {
        return;
    };
    let (width, height) = (width.to_string(), height.to_string());
    let _ = Command::new("stty")
        .args(["-F", path, "rows", &height, "cols", &width])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .await;
}

async fn copy_output(
    channel: u8,
    mut output: Box<dyn AsyncRead + Send + Unpin>,
    tx: mpsc::Sender<Message>,
) {
    let mut buffer = vec![0; 32 * 1024];
    // The end of a pty is an error, not an end of file.
    while let Ok(n) = output.read(&mut buffer).await {
        if n == 0 || tx.send(on_channel(channel, &buffer[..n])).await.is_err() {
            break;
        }
    }
}

fn start(sandbox: &Sandbox, spec: &ContainerSpec, query: &ExecQuery) -> Result<Process> {
    let Some(program) = query.command.first() else {
        return Err(crate::error::LabError::new("no command given"));
    };
    let what = || format!("run {program}");
    let mut command = Command::new(program);
    command.args(&query.command[1..]);
    if !query.tty {
        command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.stdin(if query.stdin { Stdio::piped() } else { Stdio::null() });
        let mut child = spawn(command, sandbox, spec).doing(what)?;
        let input = child.stdin.take().map(|p| Box::new(p) as Box<dyn AsyncWrite + Send + Unpin>);
        let mut outputs: Vec<(u8, Box<dyn AsyncRead + Send + Unpin>)> = Vec::new();
        if let Some(pipe) = child.stdout.take() {
            outputs.push((STDOUT, Box::new(pipe)));
        }
        if let Some(pipe) = child.stderr.take() {
            outputs.push((STDERR, Box::new(pipe)));
        }
        return Ok(Process { child, input, outputs, terminal: None });
    }
    let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
    let pty = openpty(Some(&size), None).doing(|| "open a terminal".into())?;
    let path = nix::unistd::ttyname(&pty.slave).doing(|| "name the terminal".into())?;
    let end = |fd: &OwnedFd| fd.try_clone().doing(|| "duplicate the terminal".into());
    // Becoming a session's leader with a terminal takes calls between fork and exec; the
    // machine's own program makes them.
    let mut command = Command::new("setsid");
    command.arg("--ctty").args(&query.command);
    command.stdin(end(&pty.slave)?).stdout(end(&pty.slave)?).stderr(pty.slave);
    let child = spawn(command, sandbox, spec).doing(what)?;
    let reader = tokio::fs::File::from_std(std::fs::File::from(end(&pty.master)?));
    let writer = tokio::fs::File::from_std(std::fs::File::from(pty.master));
    Ok(Process {
        child,
        input: Some(Box::new(writer)),
        outputs: vec![(STDOUT, Box::new(reader))],
        terminal: Some(path.display().to_string()),
    })
}

fn spawn(mut command: Command, sandbox: &Sandbox, spec: &ContainerSpec) -> Result<Child> {
    command.env_clear().envs(&spec.env).env("TERM", "xterm").kill_on_drop(true);
    if let Some(cwd) = &spec.cwd {
        command.current_dir(cwd);
    }
    let runtime = tokio::runtime::Handle::current();
    netns::enter_with_sys(&sandbox.netns, || {
        let _guard = runtime.enter();
        command.spawn().doing(|| "start it".into())
    })
}

fn on_channel(channel: u8, bytes: &[u8]) -> Message {
    Message::Binary([&[channel], bytes].concat().into())
}

fn failure(message: &str, reason: &str, code: u16) -> Value {
    json!({
        "metadata": {}, "status": "Failure", "message": message, "reason": reason, "code": code,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_common_protocol_is_chosen() {
        for (offered, want) in [
            ("v5.channel.k8s.io", Some("v5.channel.k8s.io")),
            ("v4.channel.k8s.io, v5.channel.k8s.io", Some("v5.channel.k8s.io")),
            ("v4.channel.k8s.io,channel.k8s.io", Some("v4.channel.k8s.io")),
            ("SPDY/3.1", None),
        ] {
            assert_eq!(choose_protocol(offered), want, "{offered}");
        }
    }

    #[test]
    fn repeated_arguments_keep_their_order() {
        let pairs: Vec<_> = [("command", "sh"), ("command", "-c"), ("tty", "true"), ("stdin", "1")]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .into();
        let query = ExecQuery::parse(&pairs);
        assert_eq!(query.command, ["sh", "-c"]);
        assert!(query.tty && query.stdin);
    }
}
