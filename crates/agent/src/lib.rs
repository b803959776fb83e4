//! The agent on every node: connects Pods and programs the bridge.
