# Runs containerd and one container on a lab node; called inside the node's network namespace and a
# mount namespace of its own, so that nothing of it is seen outside or stays.
# Arguments: scratch directory, file of the CNI configuration, directory of CNI plugins, containerd namespace, command line
# of the container. Prints what the container prints.
set -eu
scratch=$1 conf=$2 plugins=$3 namespace=$4
shift 4
mount -t tmpfs tmpfs /run/containerd
# ctr looks in these places and no others.
mount -t tmpfs tmpfs /opt
mkdir -p /opt/cni/bin
cp "$plugins"/* /opt/cni/bin/
cp "$conf" "$scratch/"
mount -t tmpfs tmpfs /etc
mkdir -p /etc/cni/net.d
cp "$scratch"/*.conflist /etc/cni/net.d/
containerd --root "$scratch/root" --state "$scratch/state" --address "$scratch/sock" \
    --log-level warn >"$scratch/log" 2>&1 &
containerd=$!
trap 'kill "$containerd"; wait "$containerd" || true' EXIT
for _ in $(seq 200); do
    ctr -a "$scratch/sock" version >/dev/null 2>&1 && break
    sleep 0.05
done
timeout 30 ctr -a "$scratch/sock" -n "$namespace" run --cni --rm \
    --mount type=bind,src=/usr,dst=/usr,options=rbind:ro \
    --rootfs "$scratch/rootfs" "$namespace" "$@"
