//! The program of Pods whose image the lab does not have: the echo service on port 8080.

use std::net::{Ipv4Addr, TcpListener, UdpSocket};

use crate::echo;
use crate::error::{Doing, Result};
use crate::ui;

/// Serves until the process is ended.
///
/// # Errors
/// When the port is taken.
pub fn run(name: &str, port: u16) -> Result<()> {
    let any = (Ipv4Addr::UNSPECIFIED, port);
    let tcp = TcpListener::bind(any).doing(|| format!("listen on TCP port {port}"))?;
    let udp = UdpSocket::bind(any).doing(|| format!("listen on UDP port {port}"))?;
    ui::line(format!("{name} answers on port {port}, TCP and UDP"));
    let udp_name = name.to_owned();
    std::thread::spawn(move || echo::serve_udp(&udp, &udp_name));
    echo::serve_tcp(&tcp, name);
    Ok(())
}
