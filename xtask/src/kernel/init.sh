#!/bin/busybox sh
# First program of the virtual machine: makes a root that looks like the host's and moves there.
# The host's root comes in by 9p, read-only; what is written lies over it in memory.
/bin/busybox --install -s /bin
export PATH=/bin
fail() {
    echo "init: $*" >/dev/ttyS1
    poweroff -f
}

mount -t devtmpfs devtmpfs /dev
mount -t proc proc /proc
while read -r module; do
    insmod "/modules/$module" || fail "cannot load $module"
done </modules/order

mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=loose,ro host /host ||
    fail "cannot mount the host's root"
mount -t tmpfs -o size=75% tmpfs /memory
mkdir /memory/upper /memory/work
mount -t overlay -o lowerdir=/host,upperdir=/memory/upper,workdir=/memory/work overlay /root ||
    fail "cannot lay memory over the host's root"
mount -t devtmpfs devtmpfs /root/dev
mount -t proc proc /root/proc
mount -t sysfs sysfs /root/sys
mount -t tmpfs tmpfs /root/run
cp /guest.sh /command /environment /root/run/
umount /proc
exec switch_root /root /bin/sh /run/guest.sh
