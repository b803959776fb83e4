//! Decides which datapath the bridge uses.
//!
//! Pure: facts in, choice or a reason out. Not here: setting up what `netdev` needs (`netdev`).

/// What the configuration asks for (`ovsDatapathType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The kernel module.
    System,
    /// The userspace datapath.
    Netdev,
    /// The kernel module where there is one, else userspace where an uplink is marked for it.
    Auto,
}

/// What the bridge gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Datapath {
    /// `datapath_type=system`.
    System,
    /// `datapath_type=netdev`.
    Netdev,
}

impl Datapath {
    /// Value of the Bridge column `datapath_type`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Netdev => "netdev",
        }
    }
}

/// What was found on the node.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The kernel has the openvswitch module, and ovs-vswitchd offers `system`.
    pub kernel_module: bool,
    /// Interface named by `antrea-netdev-uplink` in the external_ids of Open_vSwitch.
    pub marked_uplink: Option<String>,
}

/// Why no datapath can be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum DatapathError {
    /// `system` without the module.
    #[error(
        "ovsDatapathType is system, but the kernel has no openvswitch module: load it, or set ovsDatapathType to netdev or auto"
    )]
    NoModule,
    /// Userspace needs an uplink that may be moved into br-phy, and none is marked.
    #[error(
        "the netdev datapath needs an uplink that may move into br-phy: run `ovs-vsctl set Open_vSwitch . external_ids:antrea-netdev-uplink=INTERFACE`"
    )]
    NoUplink,
}

/// Chooses.
pub fn choose(wanted: Wanted, facts: &Facts) -> Result<Datapath, DatapathError> {
    let userspace =
        || if facts.marked_uplink.is_some() { Ok(Datapath::Netdev) } else { Err(DatapathError::NoUplink) };
    match wanted {
        Wanted::System if facts.kernel_module => Ok(Datapath::System),
        Wanted::System => Err(DatapathError::NoModule),
        Wanted::Netdev => userspace(),
        Wanted::Auto if facts.kernel_module => Ok(Datapath::System),
        Wanted::Auto => userspace(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices() {
        let eth0 = || Some("eth0".to_owned());
        for (name, wanted, kernel_module, marked_uplink, want) in [
            ("module wins in auto", Wanted::Auto, true, eth0(), Ok(Datapath::System)),
            ("auto without module", Wanted::Auto, false, eth0(), Ok(Datapath::Netdev)),
            ("auto moves no unmarked uplink", Wanted::Auto, false, None, Err(DatapathError::NoUplink)),
            ("netdev despite the module", Wanted::Netdev, true, eth0(), Ok(Datapath::Netdev)),
            ("netdev moves no unmarked uplink", Wanted::Netdev, true, None, Err(DatapathError::NoUplink)),
            ("system without module", Wanted::System, false, eth0(), Err(DatapathError::NoModule)),
        ] {
            assert_eq!(choose(wanted, &Facts { kernel_module, marked_uplink }), want, "{name}");
        }
    }
}
