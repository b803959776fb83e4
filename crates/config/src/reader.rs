//! Takes values out by path; the tables' test guarantees that each has the form asked for.

use std::net::SocketAddr;

use ipnet::IpNet;

use crate::client_limit::ClientLimit;
use crate::kind::Value;
use crate::values::Values;

pub(crate) struct Reader<'a>(pub(crate) &'a Values);

impl Reader<'_> {
    pub(crate) fn text(&self, path: &str) -> String {
        self.optional(path).unwrap_or_default()
    }

    /// Text that is there and not empty.
    pub(crate) fn optional(&self, path: &str) -> Option<String> {
        match self.0.get(path) {
            Some(Value::Text(text)) if !text.is_empty() => Some(text.clone()),
            _ => None,
        }
    }

    pub(crate) fn flag(&self, path: &str) -> bool {
        matches!(self.0.get(path), Some(Value::Bool(true)))
    }

    pub(crate) fn int(&self, path: &str) -> i64 {
        match self.0.get(path) {
            Some(Value::Int(value)) => *value,
            _ => 0,
        }
    }

    pub(crate) fn number(&self, path: &str) -> f64 {
        match self.0.get(path) {
            Some(Value::Number(value)) => *value,
            _ => 0.0,
        }
    }

    pub(crate) fn client_limit(&self) -> ClientLimit {
        ClientLimit {
            qps: self.number("clientConnection.qps"),
            burst: u32::try_from(self.int("clientConnection.burst")).unwrap_or(u32::MAX),
        }
    }

    pub(crate) fn port(&self, path: &str) -> u16 {
        u16::try_from(self.int(path)).unwrap_or(0)
    }

    pub(crate) fn byte(&self, path: &str) -> u8 {
        u8::try_from(self.int(path)).unwrap_or(0)
    }

    pub(crate) fn cidr(&self, path: &str) -> Option<IpNet> {
        match self.0.get(path) {
            Some(Value::Cidr(cidr)) => Some(*cidr),
            _ => None,
        }
    }

    pub(crate) fn socket(&self, path: &str) -> Option<SocketAddr> {
        match self.0.get(path) {
            Some(Value::Socket(address)) => Some(*address),
            _ => None,
        }
    }

    pub(crate) fn texts(&self, path: &str) -> Vec<String> {
        match self.0.get(path) {
            Some(Value::TextList(texts)) => texts.clone(),
            _ => Vec::new(),
        }
    }

    pub(crate) fn cidrs(&self, path: &str) -> Vec<IpNet> {
        match self.0.get(path) {
            Some(Value::CidrList(cidrs)) => cidrs.clone(),
            _ => Vec::new(),
        }
    }
}
