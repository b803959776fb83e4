#!/bin/sh
# Installs the Debian packages that building, the lab and the tests need, and those named as
# arguments. Does nothing when they are there. Starts no service: Open vSwitch of the host is left as
# it is.
set -eu

packages="openvswitch-switch nftables iptables iproute2 iputils-ping ethtool conntrack tcpdump containernetworking-plugins gcc libc6-dev $*"
missing=""
for package in $packages; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing="$missing $package"
done

if [ -n "$missing" ]; then
    if [ "$(id -u)" -ne 0 ]; then
        echo "missing packages:$missing" >&2
        echo "run this as root, or install them first: apt-get install$missing" >&2
        exit 1
    fi
    echo "installing:$missing"
    # A package that starts a daemon would change the machine; policy-rc.d forbids it meanwhile.
    policy=/usr/sbin/policy-rc.d
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod 0755 "$policy"
        trap 'rm -f "$policy"' EXIT
        trap 'exit 130' INT TERM
    fi
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    # shellcheck disable=SC2086
    apt-get install -y -qq --no-install-recommends $missing >/dev/null
fi

if ! command -v cargo >/dev/null 2>&1 && [ ! -x "$HOME/.cargo/bin/cargo" ]; then
    echo "cargo is missing: install Rust with rustup (https://rustup.rs), then run this again" >&2
    exit 1
fi
