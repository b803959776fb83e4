# Second program of the virtual machine, in the host's file system: loads what the kernel datapath
# needs, runs the command, says how it ended, and switches the machine off.
. /run/environment
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb LANG=C
exec </dev/null >/dev/ttyS1 2>&1

finish() {
    printf '\n%s %s\n' "$VM_MARK" "$1"
    sync
    echo o >/proc/sysrq-trigger
    while :; do sleep 60; done
}

mkdir -p /dev/pts /dev/shm /run/netns /run/lock
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t cgroup2 cgroup2 /sys/fs/cgroup
ln -sfn /proc/self/fd /dev/fd
mkdir -p /usr/lib/modules
mount --bind "$VM_MODULES" /usr/lib/modules
hostname kernel-test
ip link set lo up
for module in $VM_LOAD; do
    modprobe "$module" || finish 125
done

echo "kernel $(uname -r) is up after $(cut -d. -f1 /proc/uptime) s"
cd "$VM_DIR" || finish 125
sh /run/command
finish $?
