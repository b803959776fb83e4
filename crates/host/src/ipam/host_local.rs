//! `host-local`, built in: addresses of ranges, one lease file per address.
//!
//! ```text
//!   <dataDir>/<network>/10.1.2.2             "<containerID>\r\n<ifname>"
//!   <dataDir>/<network>/last_reserved_ip.0   "10.1.2.2", per range set: where round-robin goes on
//!   <dataDir>/<network>/lock                 flock, exclusive
//! ```
//! These are the files of the plugin of that name: either reads and releases the other's leases.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use nix::fcntl::{Flock, FlockArg};

use super::config::{NetConf, Range, RangeSet};
use super::result::{Dns, IpConfig, IpamResult};
use super::{IpamError, Request};

const LOCK: &str = "lock";
const LAST_RESERVED: &str = "last_reserved_ip.";
const LINE_BREAK: &str = "\r\n";

/// One interface of one container.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Attachment {
    /// The container.
    pub container_id: String,
    /// The interface inside it.
    pub ifname: String,
}

/// An address and who has it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lease {
    /// The address.
    pub ip: IpAddr,
    /// Who has it. The interface is empty in leases of old plugins.
    pub attachment: Attachment,
}

/// Allocates one address of each range set.
pub fn add(request: &Request, conf: &NetConf) -> Result<IpamResult, IpamError> {
    let attachment = attachment(request)?;
    let sets = conf.range_sets()?;
    let mut wishes = conf.wishes(&request.args)?;
    let dns = read_dns(conf)?;
    let store = Store::open(conf)?;

    let mut ips = Vec::with_capacity(sets.len());
    let mut allocate = || -> Result<(), IpamError> {
        for (number, set) in sets.iter().enumerate() {
            let wish = wishes.iter().position(|ip| set.range_of(*ip).is_some());
            let wish = wish.map(|index| wishes.remove(index));
            ips.push(store.allocate(number, set, &attachment, wish)?);
        }
        match wishes.first() {
            Some(&ip) => Err(IpamError::Unavailable { ip, reason: "it is in no range" }),
            None => Ok(()),
        }
    };
    if let Err(error) = allocate() {
        // Only what this call took: a duplicate ADD must not release the first one's address.
        for IpConfig { address, .. } in &ips {
            store.forget(address.addr())?;
        }
        return Err(error);
    }
    Ok(IpamResult { ips, routes: conf.ipam.routes.clone(), dns })
}

/// Checks that the attachment has a lease.
pub fn check(request: &Request, conf: &NetConf) -> Result<(), IpamError> {
    let attachment = attachment(request)?;
    let found = Store::open(conf)?.of_attachment(&attachment)?;
    if found.is_empty() { Err(IpamError::NoLease(attachment.container_id)) } else { Ok(()) }
}

/// Releases the attachment's leases; success when it has none.
pub fn del(request: &Request, conf: &NetConf) -> Result<(), IpamError> {
    let attachment = attachment(request)?;
    // Nothing was ever allocated here: no directory is made for saying so.
    if !conf.lease_dir().exists() {
        return Ok(());
    }
    Store::open(conf)?.release(&attachment).map(|_| ())
}

/// The lease files of a network, locked as long as this lives.
#[derive(Debug)]
pub struct Store {
    dir: PathBuf,
    _lock: Flock<File>,
}

impl Store {
    /// Opens and locks the leases of a network; waits while another holder has the lock.
    pub fn open(conf: &NetConf) -> Result<Self, IpamError> {
        Self::open_dir(conf.lease_dir())
    }

    /// Opens and locks a lease directory.
    pub fn open_dir(dir: PathBuf) -> Result<Self, IpamError> {
        fs::create_dir_all(&dir).map_err(failed("create", &dir))?;
        let path = dir.join(LOCK);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o750)
            .open(&path)
            .map_err(failed("open", &path))?;
        let lock = Flock::lock(file, FlockArg::LockExclusive)
            .map_err(|(_, errno)| failed("lock", &path)(errno.into()))?;
        Ok(Self { dir, _lock: lock })
    }

    /// All leases, in order of address.
    pub fn leases(&self) -> Result<Vec<Lease>, IpamError> {
        let mut leases = Vec::new();
        for entry in fs::read_dir(&self.dir).map_err(failed("list", &self.dir))? {
            let entry = entry.map_err(failed("list", &self.dir))?;
            let name = entry.file_name();
            let Some(ip) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
            let text = match fs::read_to_string(entry.path()) {
                Ok(text) => text,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(failed("read", &entry.path())(error)),
            };
            let text = text.trim();
            let (id, ifname) = text.split_once(LINE_BREAK).unwrap_or((text, ""));
            let attachment = Attachment { container_id: id.into(), ifname: ifname.into() };
            leases.push(Lease { ip, attachment });
        }
        leases.sort();
        Ok(leases)
    }

    /// The leases of one attachment; those without interface, by old plugins, count when there is
    /// no other.
    pub fn of_attachment(&self, attachment: &Attachment) -> Result<Vec<Lease>, IpamError> {
        let mut leases = self.leases()?;
        leases.retain(|lease| lease.attachment.container_id == attachment.container_id);
        if leases.iter().any(|lease| lease.attachment == *attachment) {
            leases.retain(|lease| lease.attachment == *attachment);
        } else {
            leases.retain(|lease| lease.attachment.ifname.is_empty());
        }
        Ok(leases)
    }

    /// Releases the leases of an attachment; returns them.
    pub fn release(&self, attachment: &Attachment) -> Result<Vec<Lease>, IpamError> {
        let leases = self.of_attachment(attachment)?;
        for lease in &leases {
            self.forget(lease.ip)?;
        }
        Ok(leases)
    }

    /// Releases one lease, if its holder is still the one that was seen. Says whether it was.
    pub fn release_one(&self, seen: &Lease) -> Result<bool, IpamError> {
        let held = self.leases()?.contains(seen);
        if held {
            self.forget(seen.ip)?;
        }
        Ok(held)
    }

    /// Releases every lease whose attachment is not among `valid`; returns them.
    pub fn gc(&self, valid: &[Attachment]) -> Result<Vec<Lease>, IpamError> {
        let is_valid = |lease: &Lease| {
            valid.iter().any(|one| {
                one.container_id == lease.attachment.container_id
                    && (lease.attachment.ifname.is_empty() || one.ifname == lease.attachment.ifname)
            })
        };
        let mut leases = self.leases()?;
        leases.retain(|lease| !is_valid(lease));
        for lease in &leases {
            self.forget(lease.ip)?;
        }
        Ok(leases)
    }

    fn allocate(
        &self,
        number: usize,
        set: &RangeSet,
        attachment: &Attachment,
        wish: Option<IpAddr>,
    ) -> Result<IpConfig, IpamError> {
        if let Some(ip) = wish {
            let unavailable = |reason| IpamError::Unavailable { ip, reason };
            let range = set.range_of(ip).ok_or_else(|| unavailable("it is in no range"))?;
            if ip == range.gateway {
                return Err(unavailable("it is the gateway"));
            }
            if !self.reserve(number, ip, attachment)? {
                return Err(unavailable("it is taken"));
            }
            return ip_config(ip, range);
        }
        let leases = self.leases()?;
        let own =
            |lease: &&Lease| lease.attachment == *attachment && set.range_of(lease.ip).is_some();
        if let Some(lease) = leases.iter().find(own) {
            let container_id = attachment.container_id.clone();
            return Err(IpamError::Duplicate { ip: lease.ip, container_id });
        }
        let taken: HashSet<IpAddr> = leases.iter().map(|lease| lease.ip).collect();
        for (ip, range) in set.round_robin(self.last_reserved(number)) {
            if !taken.contains(&ip) && self.reserve(number, ip, attachment)? {
                return ip_config(ip, range);
            }
        }
        Err(IpamError::Exhausted(set.to_string()))
    }

    /// Takes an address; false when someone has it.
    fn reserve(&self, number: usize, ip: IpAddr, who: &Attachment) -> Result<bool, IpamError> {
        let path = self.dir.join(ip.to_string());
        let mut file = match OpenOptions::new().write(true).create_new(true).mode(0o644).open(&path)
        {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(false),
            Err(error) => return Err(failed("create", &path)(error)),
        };
        let text = format!("{}{LINE_BREAK}{}", who.container_id, who.ifname);
        if let Err(error) = file.write_all(text.as_bytes()) {
            // A lease that names nobody could never be released.
            let _ = fs::remove_file(&path);
            return Err(failed("write", &path)(error));
        }
        let last = self.dir.join(format!("{LAST_RESERVED}{number}"));
        if let Err(error) = fs::write(&last, ip.to_string()) {
            let _ = fs::remove_file(&path);
            return Err(failed("write", &last)(error));
        }
        Ok(true)
    }

    fn last_reserved(&self, number: usize) -> Option<IpAddr> {
        let text = fs::read_to_string(self.dir.join(format!("{LAST_RESERVED}{number}"))).ok()?;
        text.trim().parse().ok()
    }

    fn forget(&self, ip: IpAddr) -> Result<(), IpamError> {
        let path = self.dir.join(ip.to_string());
        match fs::remove_file(&path) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(failed("remove", &path)(error)),
        }
    }
}

fn attachment(request: &Request) -> Result<Attachment, IpamError> {
    let container_id = request.container_id.trim();
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    if !container_id.starts_with(|c: char| c.is_ascii_alphanumeric())
        || !container_id.chars().all(inner)
    {
        return Err(IpamError::Environment(format!("{container_id:?} is not a container id")));
    }
    if !crate::link::is_valid_name(&request.ifname) {
        let ifname = &request.ifname;
        return Err(IpamError::Environment(format!("{ifname:?} is not an interface name")));
    }
    Ok(Attachment { container_id: container_id.into(), ifname: request.ifname.clone() })
}

fn ip_config(ip: IpAddr, range: &Range) -> Result<IpConfig, IpamError> {
    let address = IpNet::new(ip, range.subnet.prefix_len())
        .map_err(|error| IpamError::Config(error.to_string()))?;
    Ok(IpConfig { address, gateway: Some(range.gateway) })
}

fn read_dns(conf: &NetConf) -> Result<Dns, IpamError> {
    match &conf.ipam.resolv_conf {
        Some(path) if !path.as_os_str().is_empty() => {
            let text = fs::read_to_string(path).map_err(failed("read", path))?;
            Ok(Dns::from_resolv_conf(&text))
        }
        _ => Ok(Dns::default()),
    }
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> IpamError {
    let path = path.to_owned();
    move |source| IpamError::Io { action, path, source }
}

#[cfg(test)]
mod tests;
