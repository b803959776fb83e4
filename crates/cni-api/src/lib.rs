//! CNI types and the gRPC service between antrea-cni and the agent.
