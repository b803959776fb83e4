//! The program of Pods whose image the lab does not have: the echo service on port 8080.

use crate::echo;
use crate::error::{Doing, Result};
use crate::ui;

/// Serves until the process is ended.
///
/// # Errors
/// When the port is taken.
pub fn run(name: &str, port: u16) -> Result<()> {
    let (tcp, udp) = echo::listen(port).doing(|| format!("listen on port {port}"))?;
    ui::line(format!("{name} answers on port {port}, TCP and UDP"));
    let udp_name = name.to_owned();
    std::thread::spawn(move || echo::serve_udp(&udp, &udp_name));
    echo::serve_tcp(&tcp, name);
    Ok(())
}
