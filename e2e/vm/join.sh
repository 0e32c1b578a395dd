# Makes a node of the guest: containerd, then the kubelet. Files that this machine gave it lie in /host/node.
modprobe -a virtio_net overlay bridge veth br_netfilter
ip address add 10.0.2.15/24 dev eth0
ip link set eth0 up
ip route add default via 10.0.2.2
echo 1 >/proc/sys/net/ipv4/ip_forward
# What is written and executed often is in memory: a file system of the host is slow under emulation.
for folder in /var/lib/kubelet /var/lib/containerd /var/log /opt; do
  mkdir -p $folder
  mount -t tmpfs tmpfs $folder
done
# The kubelet watches mounts of pods that spread.
mount --make-rshared /
mkdir -p /etc/containerd/conf.d /run/bin
cp /usr/lib/capstan/kubelet /run/bin/
setsid containerd --config /host/node/containerd.toml >/host/node/containerd.log 2>&1 </dev/null &
until ctr version >/dev/null 2>&1; do
  kill -0 $! || { tail -3 /host/node/containerd.log >&2; exit 1; }
  sleep 0.2
done
ctr -n k8s.io images import --local /host/node/image.tar
cat >/run/bin/start-kubelet <<'START'
#!/bin/sh
# In a file, so that a story can start the kubelet again as it was.
setsid /run/bin/kubelet --config=/host/node/kubelet.json --kubeconfig=/host/node/kubeconfig \
  --hostname-override=capstan --node-ip=10.0.2.15 >>/host/node/kubelet.log 2>&1 </dev/null &
START
chmod 755 /run/bin/start-kubelet
/run/bin/start-kubelet
