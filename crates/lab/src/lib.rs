//! antrea-lab: nodes in namespaces, Pods through the real CNI, scenarios and the demo.
//!
//! Turns one command into a network at work on one machine: wires ([`topology`]), switches
//! ([`ovs`]), agents ([`agent`]), a control plane ([`cluster`]), Pods ([`sandbox`]), and looks at
//! it from outside ([`matrix`], [`measure`], [`trace`], [`check`]). [`layout`] says where
//! everything lies, [`state`] what [`down`] has to undo.
//!
//! Never touches the machine's own network or its own Open vSwitch.

pub mod addressing;
pub mod agent;
pub mod bench;
pub mod check;
pub mod cli;
pub mod cluster;
pub mod cni;
pub mod component;
pub mod container;
pub mod demo;
pub mod dns;
pub mod down;
pub mod echo;
pub mod error;
pub mod health;
pub mod interrupt;
pub mod ip;
pub mod kept;
pub mod kubelet;
pub mod layout;
pub mod matrix;
pub mod measure;
pub mod netns;
pub mod ovs;
pub mod pod_server;
pub mod pods;
pub mod preflight;
pub mod probe;
pub mod process;
pub mod quote;
pub mod run;
pub mod sandbox;
pub mod sctp;
pub mod state;
pub mod status;
pub mod sysctl;
pub mod topology;
pub mod trace;
pub mod traffic;
pub mod ui;
pub mod up;
pub mod variant;
