//! Runs CNI plugins as a container runtime does: environment, stdin, chained results.
//!
//! ADD runs the plugins of a list in order, each given the result of the one before; DEL runs
//! them in reverse with the result of ADD. Knows nothing of Pods.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use thiserror::Error;

use crate::netns;

/// The error code that asks the runtime to try again later.
pub const TRY_AGAIN: u64 = 11;

/// Why a plugin did not do what it was asked.
#[derive(Debug, Error)]
pub enum CniFailure {
    /// The configuration list cannot be used.
    #[error("network configuration {path}: {why}")]
    Config {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// There is no such plugin.
    #[error("no plugin {0} in any plugin directory")]
    NoPlugin(String),
    /// The plugin could not be run, or answered something that is not CNI.
    #[error("plugin {plugin}: {why}")]
    Run {
        /// Its type.
        plugin: String,
        /// What happened.
        why: String,
    },
    /// The plugin answered with a CNI error.
    #[error("plugin {plugin}: {message} (code {code})")]
    Plugin {
        /// Its type.
        plugin: String,
        /// The code of the CNI specification.
        code: u64,
        /// Its message and details.
        message: String,
    },
}

impl CniFailure {
    /// Whether the same request may succeed a little later.
    #[must_use]
    pub fn is_try_again(&self) -> bool {
        matches!(self, Self::Plugin { code, .. } if *code == TRY_AGAIN)
    }

    /// The CNI error code, if the plugin gave one.
    #[must_use]
    pub fn code(&self) -> Option<u64> {
        match self {
            Self::Plugin { code, .. } => Some(*code),
            _ => None,
        }
    }
}

/// What is attached to the network.
#[derive(Clone, Debug)]
pub struct Attachment {
    /// Id of the sandbox.
    pub container_id: String,
    /// Its namespace; empty when it is gone.
    pub netns: String,
    /// Name of the interface inside.
    pub ifname: String,
    /// `CNI_ARGS`.
    pub args: String,
    /// What the Pod asks of plugins with capabilities, by capability.
    pub capabilities: BTreeMap<String, Value>,
}

/// Where plugins are and in which namespace they run.
#[derive(Clone, Debug)]
pub struct Plugins {
    /// Directories, searched in order.
    pub path: Vec<PathBuf>,
    /// The node's namespace.
    pub node_netns: PathBuf,
}

/// A parsed configuration list.
#[derive(Clone, Debug)]
pub struct NetworkList {
    name: String,
    version: String,
    plugins: Vec<Value>,
}

impl NetworkList {
    /// Reads a `.conflist` file.
    ///
    /// # Errors
    /// When it cannot be read or is no list.
    pub fn read(path: &Path) -> Result<Self, CniFailure> {
        let config = |why: String| CniFailure::Config { path: path.to_owned(), why };
        let text = std::fs::read(path).map_err(|e| config(e.to_string()))?;
        let list: Value = serde_json::from_slice(&text).map_err(|e| config(e.to_string()))?;
        let text_of = |key: &str| list[key].as_str().map(str::to_owned);
        Ok(Self {
            name: text_of("name").ok_or_else(|| config("no name".into()))?,
            version: text_of("cniVersion").ok_or_else(|| config("no cniVersion".into()))?,
            plugins: list["plugins"]
                .as_array()
                .filter(|p| !p.is_empty())
                .cloned()
                .ok_or_else(|| config("no plugins".into()))?,
        })
    }

    /// The list with its first plugin alone.
    #[must_use]
    pub fn first_only(mut self) -> Self {
        self.plugins.truncate(1);
        self
    }

    /// What one plugin gets on stdin.
    fn stdin_of(&self, plugin: &Value, attachment: &Attachment, previous: Option<&Value>) -> Value {
        let mut config = plugin.clone();
        config["name"] = json!(self.name);
        config["cniVersion"] = json!(self.version);
        if let Some(previous) = previous {
            config["prevResult"] = previous.clone();
        }
        let mut runtime = serde_json::Map::new();
        for (capability, value) in &attachment.capabilities {
            if plugin["capabilities"][capability] == json!(true) {
                runtime.insert(capability.clone(), value.clone());
            }
        }
        if let Some(object) = config.as_object_mut() {
            object.remove("capabilities");
            if !runtime.is_empty() {
                object.insert("runtimeConfig".into(), Value::Object(runtime));
            }
        }
        config
    }
}

impl Plugins {
    /// Attaches; gives back the last plugin's result. What a failed ADD left is for the caller
    /// to remove by [`Plugins::del`].
    ///
    /// # Errors
    /// When a plugin fails.
    pub fn add(&self, list: &NetworkList, attachment: &Attachment) -> Result<Value, CniFailure> {
        let mut result = None;
        for plugin in &list.plugins {
            let stdin = list.stdin_of(plugin, attachment, result.as_ref());
            result = Some(self.run("ADD", &stdin, attachment)?);
        }
        Ok(result.unwrap_or(Value::Null))
    }

    /// Checks an attachment against the result of its ADD.
    ///
    /// # Errors
    /// When a plugin finds something amiss.
    pub fn check(
        &self,
        list: &NetworkList,
        attachment: &Attachment,
        result: &Value,
    ) -> Result<(), CniFailure> {
        for plugin in &list.plugins {
            let stdin = list.stdin_of(plugin, attachment, Some(result));
            self.run("CHECK", &stdin, attachment)?;
        }
        Ok(())
    }

    /// Detaches. All plugins are asked, also after one failed; the first failure is given back.
    ///
    /// # Errors
    /// When a plugin fails.
    pub fn del(
        &self,
        list: &NetworkList,
        attachment: &Attachment,
        result: Option<&Value>,
    ) -> Result<(), CniFailure> {
        let mut failure = None;
        for plugin in list.plugins.iter().rev() {
            let stdin = list.stdin_of(plugin, attachment, result);
            if let Err(error) = self.run("DEL", &stdin, attachment) {
                failure.get_or_insert(error);
            }
        }
        failure.map_or(Ok(()), Err)
    }

    /// Runs one plugin with this stdin; its answer, or null where the verb has none.
    ///
    /// # Errors
    /// When it cannot be run or answers with an error.
    pub fn run(
        &self,
        verb: &str,
        stdin: &Value,
        attachment: &Attachment,
    ) -> Result<Value, CniFailure> {
        let plugin = stdin["type"].as_str().unwrap_or_default();
        self.run_raw(verb, plugin, stdin.to_string().as_bytes(), attachment)
    }

    /// The same with bytes as they are, well formed or not.
    ///
    /// # Errors
    /// As [`Plugins::run`].
    pub fn run_raw(
        &self,
        verb: &str,
        plugin: &str,
        stdin: &[u8],
        attachment: &Attachment,
    ) -> Result<Value, CniFailure> {
        let program = self.find(plugin)?;
        let failed = |why: String| CniFailure::Run { plugin: plugin.into(), why };
        let path: Vec<_> = self.path.iter().map(|p| p.display().to_string()).collect();
        let mut command = Command::new(&program);
        command
            .env("PATH", crate::preflight::search_path())
            .env("CNI_COMMAND", verb)
            .env("CNI_CONTAINERID", &attachment.container_id)
            .env("CNI_NETNS", &attachment.netns)
            .env("CNI_IFNAME", &attachment.ifname)
            .env("CNI_ARGS", &attachment.args)
            .env("CNI_PATH", path.join(":"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // A Ctrl-C at the terminal is for us alone: a plugin ends what it began.
            .process_group(0);
        let mut child = netns::enter(&self.node_netns, || command.spawn())
            .map_err(|e| failed(e.chain()))?
            .map_err(|e| failed(e.to_string()))?;
        if let Some(mut pipe) = child.stdin.take() {
            // A plugin that refuses early may close its stdin: its answer says why.
            let _ = pipe.write_all(stdin);
        }
        let output = child.wait_with_output().map_err(|e| failed(e.to_string()))?;
        let said = String::from_utf8_lossy(&output.stdout);
        if output.status.success() {
            if said.trim().is_empty() {
                return Ok(Value::Null);
            }
            return serde_json::from_str(&said)
                .map_err(|e| failed(format!("its answer is not JSON: {e}")));
        }
        match serde_json::from_str::<Value>(&said) {
            Ok(error) if error["code"].is_u64() => {
                let mut message = error["msg"].as_str().unwrap_or_default().to_owned();
                if let Some(details) = error["details"].as_str().filter(|d| !d.is_empty()) {
                    message = format!("{message}: {details}");
                }
                let code = error["code"].as_u64().unwrap_or_default();
                Err(CniFailure::Plugin { plugin: plugin.into(), code, message })
            }
            _ => {
                let errors = String::from_utf8_lossy(&output.stderr);
                Err(failed(format!("{}: {} {}", output.status, said.trim(), errors.trim())))
            }
        }
    }

    /// The program of a plugin.
    ///
    /// # Errors
    /// When no directory has it, or the type is no plain file name.
    pub fn find(&self, plugin: &str) -> Result<PathBuf, CniFailure> {
        if plugin.is_empty() || plugin.contains('/') {
            return Err(CniFailure::NoPlugin(plugin.into()));
        }
        let mut programs = self.path.iter().map(|dir| dir.join(plugin));
        programs.find(|p| p.exists()).ok_or_else(|| CniFailure::NoPlugin(plugin.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_attachment() -> Attachment {
        Attachment {
            container_id: "c1".into(),
            netns: "/run/netns/x".into(),
            ifname: "eth0".into(),
            args: "K8S_POD_NAME=a".into(),
            capabilities: BTreeMap::from([("portMappings".into(), json!([{"hostPort": 80}]))]),
        }
    }

    #[test]
    fn stdin_carries_name_version_result_and_only_wanted_capabilities() {
        let list = NetworkList {
            name: "antrea".into(),
            version: "1.0.0".into(),
            plugins: vec![
                json!({"type": "antrea"}),
                json!({"type": "portmap", "capabilities": {"portMappings": true}}),
            ],
        };
        let first = list.stdin_of(&list.plugins[0], &mk_attachment(), None);
        assert_eq!(first, json!({"type": "antrea", "name": "antrea", "cniVersion": "1.0.0"}));
        let second = list.stdin_of(&list.plugins[1], &mk_attachment(), Some(&json!({"ips": []})));
        assert_eq!(
            second,
            json!({"type": "portmap", "name": "antrea", "cniVersion": "1.0.0",
                   "prevResult": {"ips": []},
                   "runtimeConfig": {"portMappings": [{"hostPort": 80}]}})
        );
    }

    #[test]
    fn a_plugin_type_that_is_a_path_is_refused() {
        let plugins = Plugins { path: vec!["/bin".into()], node_netns: "/x".into() };
        assert!(plugins.find("../bin/sh").is_err());
        assert!(plugins.find("sh").is_ok());
    }

    #[test]
    fn a_list_without_plugins_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.conflist");
        for text in ["", "{}", r#"{"name":"a","cniVersion":"1.0.0","plugins":[]}"#] {
            std::fs::write(&path, text).unwrap();
            assert!(NetworkList::read(&path).is_err(), "{text}");
        }
    }
}
