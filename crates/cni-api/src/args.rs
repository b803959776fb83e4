//! `CNI_ARGS`: what the runtime says about the Pod.

use std::net::IpAddr;

/// Why `CNI_ARGS` cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArgsError {
    /// Something between two semicolons is not `KEY=value`.
    #[error("CNI_ARGS: {0:?} is not KEY=value")]
    NotAPair(String),
    /// A key that we do not know, without leave to ignore it.
    #[error("CNI_ARGS: unknown key {0:?} and no IgnoreUnknown")]
    UnknownKey(String),
    /// The requested address is none.
    #[error("CNI_ARGS: IP {0:?} is not an address")]
    BadIp(String),
    /// The value of `IgnoreUnknown` is neither true nor false.
    #[error("CNI_ARGS: IgnoreUnknown {0:?} is not a truth value")]
    BadIgnoreUnknown(String),
}

/// The keys of `CNI_ARGS` that Kubernetes runtimes send. A runtime without Pods sends none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodArgs {
    /// `K8S_POD_NAMESPACE`
    pub pod_namespace: String,
    /// `K8S_POD_NAME`
    pub pod_name: String,
    /// `K8S_POD_UID`
    pub pod_uid: String,
    /// `K8S_POD_INFRA_CONTAINER_ID`
    pub infra_container_id: String,
    /// `IP`: the address the Pod wishes.
    pub ip: Option<IpAddr>,
}

impl PodArgs {
    /// Reads `KEY=value;KEY=value`. An unknown key is an error unless `IgnoreUnknown` is true.
    pub fn parse(text: &str) -> Result<Self, ArgsError> {
        let mut args = Self::default();
        let mut ignore_unknown = false;
        let mut unknown = None;
        for pair in text.split(';').filter(|pair| !pair.is_empty()) {
            let (key, value) =
                pair.split_once('=').ok_or_else(|| ArgsError::NotAPair(pair.to_owned()))?;
            match key {
                "K8S_POD_NAMESPACE" => value.clone_into(&mut args.pod_namespace),
                "K8S_POD_NAME" => value.clone_into(&mut args.pod_name),
                "K8S_POD_UID" => value.clone_into(&mut args.pod_uid),
                "K8S_POD_INFRA_CONTAINER_ID" => value.clone_into(&mut args.infra_container_id),
                "IP" => {
                    // Some callers write a prefix length behind the address.
                    let address = value.split('/').next().unwrap_or(value);
                    let ip = address.parse().map_err(|_| ArgsError::BadIp(value.to_owned()))?;
                    args.ip = Some(ip);
                }
                "IgnoreUnknown" => ignore_unknown = truth(value)?,
                _ => {
                    unknown.get_or_insert_with(|| key.to_owned());
                }
            }
        }
        match unknown {
            Some(key) if !ignore_unknown => Err(ArgsError::UnknownKey(key)),
            _ => Ok(args),
        }
    }
}

fn truth(value: &str) -> Result<bool, ArgsError> {
    match value.to_ascii_lowercase().as_str() {
        "1" | "true" => Ok(true),
        "0" | "false" => Ok(false),
        _ => Err(ArgsError::BadIgnoreUnknown(value.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_kubelet_sends_is_read() {
        let args = PodArgs::parse(
            "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0;\
             K8S_POD_INFRA_CONTAINER_ID=c1;K8S_POD_UID=u1;SOMETHING=else",
        )
        .unwrap();
        assert_eq!(args.pod_namespace, "shop");
        assert_eq!(args.pod_name, "web-0");
        assert_eq!(args.pod_uid, "u1");
        assert_eq!(args.infra_container_id, "c1");
        assert_eq!(PodArgs::parse("").unwrap(), PodArgs::default());
        assert_eq!(PodArgs::parse("IP=10.0.0.9/24").unwrap().ip, "10.0.0.9".parse().ok());
    }

    #[test]
    fn bad_arguments_are_named() {
        for (text, want) in [
            ("FOO", ArgsError::NotAPair("FOO".into())),
            ("FOO=bar", ArgsError::UnknownKey("FOO".into())),
            ("IgnoreUnknown=0;FOO=bar", ArgsError::UnknownKey("FOO".into())),
            ("IgnoreUnknown=maybe", ArgsError::BadIgnoreUnknown("maybe".into())),
            ("IP=ten", ArgsError::BadIp("ten".into())),
        ] {
            assert_eq!(PodArgs::parse(text), Err(want), "{text}");
        }
    }
}
