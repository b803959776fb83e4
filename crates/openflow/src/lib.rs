//! OpenFlow 1.5 with the Nicira extensions: wire codec, and the text form that ovs-ofctl prints.
