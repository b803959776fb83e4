//! Text as `ovs-ofctl -O OpenFlow15` writes and reads it.
