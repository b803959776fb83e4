//! The CNI plugin that kubelet runs: hands one request to the agent.
