//! Linux networking of a node: links, addresses, routes, namespaces, conntrack, nftables, sysctls.
