//! Latency and throughput of one pair, measured by our own code in their namespaces.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::error::{Doing, LabError, Result};
use crate::{netns, probe};

/// Request-response times over one connection.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Latency {
    /// Number of exchanges.
    pub n: usize,
    /// Shortest, in microseconds.
    pub min_us: f64,
    /// Median.
    pub median_us: f64,
    /// 99th percentile; none under 1,000 samples.
    pub p99_us: Option<f64>,
    /// Longest.
    pub max_us: f64,
}

/// Bytes through one TCP stream.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Throughput {
    /// Seconds from the first byte to the receiver's word that it has the last.
    pub seconds: f64,
    /// Bytes that the receiver counted.
    pub bytes: u64,
    /// Megabits per second.
    pub mbit_per_second: f64,
}

/// A TCP connection to an echo server, for one small exchange after the other.
pub struct Connection {
    reader: BufReader<TcpStream>,
    n: usize,
}

impl Connection {
    /// Connects, and makes the exchanges that set up flows and caches.
    ///
    /// # Errors
    /// When the connection fails.
    pub fn open(netns: &Path, target: SocketAddr) -> Result<Self> {
        let stream = probe::tcp_connect(netns, target, Duration::from_secs(5))?;
        let mut connection = Self { reader: BufReader::new(stream), n: 0 };
        for _ in 0..50 {
            connection.exchange()?;
        }
        Ok(connection)
    }

    /// Makes one exchange and says how many microseconds it took.
    ///
    /// # Errors
    /// When the connection fails, or another answer comes than the one asked for.
    pub fn exchange(&mut self) -> Result<f64> {
        let started = Instant::now();
        let request = format!("ping {}\n", self.n);
        self.n += 1;
        self.reader.get_ref().write_all(request.as_bytes()).doing(|| "send a request".into())?;
        let mut line = String::new();
        self.reader.read_line(&mut line).doing(|| "wait for the answer".into())?;
        if line != request {
            return Err(LabError::new(format!("asked {request:?}, was answered {line:?}")));
        }
        Ok(started.elapsed().as_secs_f64() * 1e6)
    }
}

/// Makes `n` small exchanges over one TCP connection.
///
/// # Errors
/// When the connection fails.
pub fn latency(netns: &Path, target: SocketAddr, n: usize) -> Result<Latency> {
    let mut connection = Connection::open(netns, target)?;
    let samples = (0..n).map(|_| connection.exchange()).collect::<Result<Vec<_>>>()?;
    summarise(samples).ok_or_else(|| LabError::new("no samples"))
}

/// Makes `n` TCP connections one after the other, with one small exchange on each. Says of each how
/// many microseconds it took from the first packet to the last. The client closes first.
///
/// # Errors
/// When a connection fails.
pub fn connections(netns: &Path, target: SocketAddr, n: usize) -> Result<Vec<f64>> {
    netns::enter(netns, || {
        let mut line = String::new();
        (0..n)
            .map(|i| {
                let started = Instant::now();
                let stream = TcpStream::connect_timeout(&target, Duration::from_secs(5))?;
                let request = format!("ping {i}\n");
                (&stream).write_all(request.as_bytes())?;
                line.clear();
                BufReader::new(&stream).read_line(&mut line)?;
                drop(stream);
                if line == request {
                    Ok(started.elapsed().as_secs_f64() * 1e6)
                } else {
                    Err(io::Error::other(format!("asked {request:?}, was answered {line:?}")))
                }
            })
            .collect::<io::Result<Vec<_>>>()
    })?
    .doing(|| format!("make connections to {target}"))
}

/// Sends as much as it can over one TCP stream for a while.
///
/// # Errors
/// When the connection fails.
pub fn throughput(netns: &Path, target: SocketAddr, during: Duration) -> Result<Throughput> {
    let stream = probe::tcp_connect(netns, target, Duration::from_secs(10))?;
    (&stream).write_all(b"sink\n").doing(|| "send".into())?;
    let chunk = vec![b'x'; 128 * 1024];
    let started = Instant::now();
    while started.elapsed() < during {
        crate::interrupt::check()?;
        (&stream).write_all(&chunk).doing(|| "send".into())?;
    }
    stream.shutdown(Shutdown::Write).doing(|| "close our side".into())?;
    let mut line = String::new();
    BufReader::new(&stream)
        .read_line(&mut line)
        .doing(|| "wait for the receiver's count".into())?;
    let seconds = started.elapsed().as_secs_f64();
    let bytes: u64 = line.trim().parse().doing(|| "read the receiver's count".into())?;
    #[allow(clippy::cast_precision_loss)] // A few gigabytes stay far below 2^52.
    let mbit_per_second = bytes as f64 * 8.0 / seconds / 1e6;
    Ok(Throughput { seconds, bytes, mbit_per_second })
}

/// Order statistics of samples in microseconds.
#[must_use]
pub fn summarise(mut samples: Vec<f64>) -> Option<Latency> {
    samples.sort_by(f64::total_cmp);
    let at =
        |per_mille: usize| samples.get((samples.len() * per_mille / 1000).min(samples.len() - 1));
    let (min, max) = (*samples.first()?, *samples.last()?);
    Some(Latency {
        n: samples.len(),
        min_us: min,
        median_us: at(500).copied()?,
        p99_us: if samples.len() >= 1000 { at(990).copied() } else { None },
        max_us: max,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_no_p99_of_few_samples() {
        let few = summarise((0..100).map(f64::from).collect()).unwrap();
        assert_eq!((few.min_us, few.median_us, few.p99_us), (0.0, 50.0, None));
        let many = summarise((0..1000).map(f64::from).collect()).unwrap();
        assert_eq!((many.p99_us, many.max_us), (Some(990.0), 999.0));
        assert!(summarise(Vec::new()).is_none());
    }
}
