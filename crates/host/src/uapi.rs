//! Kernel constants of the netlink families we speak, named as in the kernel's headers.
//!
//! Only what is used here, and typed as it goes on the wire (`libc` has many of them as `c_int`).

#![allow(non_upper_case_globals, reason = "kernel names")]

// linux/netlink.h
pub(crate) const NLM_F_REQUEST: u16 = 0x1;
pub(crate) const NLM_F_ACK: u16 = 0x4;
pub(crate) const NLM_F_DUMP_INTR: u16 = 0x10;
pub(crate) const NLM_F_REPLACE: u16 = 0x100;
pub(crate) const NLM_F_EXCL: u16 = 0x200;
pub(crate) const NLM_F_CREATE: u16 = 0x400;
pub(crate) const NLM_F_DUMP: u16 = 0x300;
pub(crate) const NLM_F_CAPPED: u16 = 0x100;
pub(crate) const NLM_F_ACK_TLVS: u16 = 0x200;
pub(crate) const NLMSG_ERROR: u16 = 2;
pub(crate) const NLMSG_DONE: u16 = 3;
pub(crate) const NLMSGERR_ATTR_MSG: u16 = 1;
pub(crate) const NLA_F_NESTED: u16 = 0x8000;
pub(crate) const NLA_TYPE_MASK: u16 = 0x3fff;
pub(crate) const SOL_NETLINK: i32 = 270;
pub(crate) const NETLINK_CAP_ACK: i32 = 10;
pub(crate) const NETLINK_EXT_ACK: i32 = 11;
pub(crate) const NETLINK_GET_STRICT_CHK: i32 = 12;

// linux/rtnetlink.h
pub(crate) const RTM_NEWLINK: u16 = 16;
pub(crate) const RTM_DELLINK: u16 = 17;
pub(crate) const RTM_GETLINK: u16 = 18;
pub(crate) const RTM_SETLINK: u16 = 19;
pub(crate) const RTM_NEWADDR: u16 = 20;
pub(crate) const RTM_DELADDR: u16 = 21;
pub(crate) const RTM_GETADDR: u16 = 22;
pub(crate) const RTM_NEWROUTE: u16 = 24;
pub(crate) const RTM_DELROUTE: u16 = 25;
pub(crate) const RTM_GETROUTE: u16 = 26;
pub(crate) const RTM_NEWNEIGH: u16 = 28;
pub(crate) const RTM_DELNEIGH: u16 = 29;
pub(crate) const RTM_GETNEIGH: u16 = 30;

// Multicast groups, as bits of `sockaddr_nl.nl_groups`.
pub(crate) const RTMGRP_LINK: u32 = 0x1;
pub(crate) const RTMGRP_NEIGH: u32 = 0x4;
pub(crate) const RTMGRP_IPV4_IFADDR: u32 = 0x10;
pub(crate) const RTMGRP_IPV4_ROUTE: u32 = 0x40;
pub(crate) const RTMGRP_IPV6_IFADDR: u32 = 0x100;
pub(crate) const RTMGRP_IPV6_ROUTE: u32 = 0x400;

// linux/if_link.h
pub(crate) const IFLA_ADDRESS: u16 = 1;
pub(crate) const IFLA_IFNAME: u16 = 3;
pub(crate) const IFLA_MTU: u16 = 4;
pub(crate) const IFLA_LINK: u16 = 5;
pub(crate) const IFLA_MASTER: u16 = 10;
pub(crate) const IFLA_LINKINFO: u16 = 18;
pub(crate) const IFLA_IFALIAS: u16 = 20;
pub(crate) const IFLA_STATS64: u16 = 23;
pub(crate) const IFLA_AF_SPEC: u16 = 26;
pub(crate) const IFLA_NET_NS_FD: u16 = 28;
pub(crate) const IFLA_CARRIER: u16 = 33;
pub(crate) const IFLA_LINK_NETNSID: u16 = 37;
pub(crate) const IFLA_INFO_KIND: u16 = 1;
pub(crate) const IFLA_INFO_DATA: u16 = 2;
pub(crate) const VETH_INFO_PEER: u16 = 1;
pub(crate) const IFLA_INET6_ADDR_GEN_MODE: u16 = 8;
pub(crate) const IN6_ADDR_GEN_MODE_NONE: u8 = 1;
pub(crate) const IFF_UP: u32 = 0x1;
pub(crate) const IFF_LOOPBACK: u32 = 0x8;
pub(crate) const IFF_LOWER_UP: u32 = 0x10000;

// linux/if_addr.h
pub(crate) const IFA_ADDRESS: u16 = 1;
pub(crate) const IFA_LOCAL: u16 = 2;
pub(crate) const IFA_CACHEINFO: u16 = 6;
pub(crate) const IFA_FLAGS: u16 = 8;
pub(crate) const IFA_F_TEMPORARY: u32 = 0x01;
pub(crate) const IFA_F_NODAD: u32 = 0x02;
pub(crate) const IFA_F_DADFAILED: u32 = 0x08;
pub(crate) const IFA_F_TENTATIVE: u32 = 0x40;
pub(crate) const IFA_F_PERMANENT: u32 = 0x80;
pub(crate) const IFA_F_MANAGETEMPADDR: u32 = 0x100;
pub(crate) const IFA_F_NOPREFIXROUTE: u32 = 0x200;

// Routes.
pub(crate) const RTA_DST: u16 = 1;
pub(crate) const RTA_OIF: u16 = 4;
pub(crate) const RTA_GATEWAY: u16 = 5;
pub(crate) const RTA_PRIORITY: u16 = 6;
pub(crate) const RTA_PREFSRC: u16 = 7;
pub(crate) const RTA_METRICS: u16 = 8;
pub(crate) const RTA_MULTIPATH: u16 = 9;
pub(crate) const RTA_TABLE: u16 = 15;
pub(crate) const RTAX_MTU: u16 = 2;
pub(crate) const RTNH_F_ONLINK: u32 = 4;
pub(crate) const RTM_F_CLONED: u32 = 0x200;

// linux/neighbour.h
pub(crate) const NDA_DST: u16 = 1;
pub(crate) const NDA_LLADDR: u16 = 2;
pub(crate) const NUD_PERMANENT: u16 = 0x80;
pub(crate) const NTF_USE: u8 = 0x01;
pub(crate) const NTF_PROXY: u8 = 0x08;

// linux/netfilter/nfnetlink.h
pub(crate) const NFNL_MSG_BATCH_BEGIN: u16 = 0x10;
pub(crate) const NFNL_MSG_BATCH_END: u16 = 0x11;
pub(crate) const NFNL_SUBSYS_CTNETLINK: u16 = 1;
pub(crate) const NFNL_SUBSYS_NFTABLES: u16 = 10;
pub(crate) const NFPROTO_UNSPEC: u8 = 0;
pub(crate) const NFPROTO_INET: u8 = 1;
pub(crate) const NFPROTO_NETDEV: u8 = 5;

/// `NFNLGRP_NFTABLES` (7) as a bit of `sockaddr_nl.nl_groups`.
pub(crate) const NFTABLES_GROUP: u32 = 1 << 6;

// linux/netfilter/nf_tables.h
pub(crate) const NFT_MSG_NEWTABLE: u16 = 0;
pub(crate) const NFT_MSG_DELTABLE: u16 = 2;
pub(crate) const NFT_MSG_NEWCHAIN: u16 = 3;
pub(crate) const NFT_MSG_GETCHAIN: u16 = 4;
pub(crate) const NFT_MSG_DELCHAIN: u16 = 5;
pub(crate) const NFTA_TABLE_NAME: u16 = 1;
pub(crate) const NFTA_CHAIN_TABLE: u16 = 1;
pub(crate) const NFTA_CHAIN_NAME: u16 = 3;
pub(crate) const NFTA_CHAIN_HOOK: u16 = 4;
pub(crate) const NFTA_CHAIN_POLICY: u16 = 5;
pub(crate) const NFTA_CHAIN_TYPE: u16 = 7;
pub(crate) const NFTA_CHAIN_USERDATA: u16 = 12;
pub(crate) const NFTA_HOOK_HOOKNUM: u16 = 1;
pub(crate) const NFTA_HOOK_PRIORITY: u16 = 2;
pub(crate) const NFTA_HOOK_DEV: u16 = 3;
pub(crate) const NFTA_HOOK_DEVS: u16 = 4;
pub(crate) const NFTA_DEVICE_NAME: u16 = 1;
pub(crate) const NF_NETDEV_INGRESS: u32 = 0;
pub(crate) const NF_DROP: u32 = 0;

// linux/netfilter/nfnetlink_conntrack.h
pub(crate) const IPCTNL_MSG_CT_GET: u16 = 1;
pub(crate) const IPCTNL_MSG_CT_DELETE: u16 = 2;
pub(crate) const CTA_TUPLE_ORIG: u16 = 1;
pub(crate) const CTA_TUPLE_REPLY: u16 = 2;
pub(crate) const CTA_STATUS: u16 = 3;
pub(crate) const CTA_TIMEOUT: u16 = 7;
pub(crate) const CTA_MARK: u16 = 8;
pub(crate) const CTA_ID: u16 = 12;
pub(crate) const CTA_ZONE: u16 = 18;
pub(crate) const CTA_TUPLE_IP: u16 = 1;
pub(crate) const CTA_TUPLE_PROTO: u16 = 2;
pub(crate) const CTA_TUPLE_ZONE: u16 = 3;
pub(crate) const CTA_IP_V4_SRC: u16 = 1;
pub(crate) const CTA_IP_V4_DST: u16 = 2;
pub(crate) const CTA_IP_V6_SRC: u16 = 3;
pub(crate) const CTA_IP_V6_DST: u16 = 4;
pub(crate) const CTA_PROTO_NUM: u16 = 1;
pub(crate) const CTA_PROTO_SRC_PORT: u16 = 2;
pub(crate) const CTA_PROTO_DST_PORT: u16 = 3;

// linux/ethtool.h, linux/sockios.h
pub(crate) const ETHTOOL_GTXCSUM: u32 = 0x16;
pub(crate) const ETHTOOL_STXCSUM: u32 = 0x17;
pub(crate) const SIOCETHTOOL: u64 = 0x8946;
