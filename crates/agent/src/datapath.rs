//! Decides which datapath the bridge uses.
//!
//! Pure: facts in, choice or a reason out. Not here: setting up what `netdev` needs (`netdev`).

use antrea_config::DatapathType;

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
pub fn choose(wanted: DatapathType, facts: &Facts) -> Result<Datapath, DatapathError> {
    let userspace = || {
        if facts.marked_uplink.is_some() {
            Ok(Datapath::Netdev)
        } else {
            Err(DatapathError::NoUplink)
        }
    };
    match wanted {
        DatapathType::System if facts.kernel_module => Ok(Datapath::System),
        DatapathType::System => Err(DatapathError::NoModule),
        DatapathType::Netdev => userspace(),
        DatapathType::Auto if facts.kernel_module => Ok(Datapath::System),
        DatapathType::Auto => userspace(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices() {
        let eth0 = || Some("eth0".to_owned());
        for (name, wanted, kernel_module, marked_uplink, want) in [
            ("module wins in auto", DatapathType::Auto, true, eth0(), Ok(Datapath::System)),
            ("auto without module", DatapathType::Auto, false, eth0(), Ok(Datapath::Netdev)),
            (
                "auto moves no unmarked uplink",
                DatapathType::Auto,
                false,
                None,
                Err(DatapathError::NoUplink),
            ),
            ("netdev despite the module", DatapathType::Netdev, true, eth0(), Ok(Datapath::Netdev)),
            (
                "netdev moves no unmarked uplink",
                DatapathType::Netdev,
                true,
                None,
                Err(DatapathError::NoUplink),
            ),
            (
                "system without module",
                DatapathType::System,
                false,
                eth0(),
                Err(DatapathError::NoModule),
            ),
        ] {
            assert_eq!(choose(wanted, &Facts { kernel_module, marked_uplink }), want, "{name}");
        }
    }
}
