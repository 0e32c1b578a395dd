#!/bin/sh
# Installs the packages of the tree. Runs in a chroot of it, with names of packages as arguments.
set -eu
# The kernel finds its root without an initramfs, so none is made.
export DEBIAN_FRONTEND=noninteractive INITRD=No LC_ALL=C
# A tree that is cut short is made again: nothing has to reach the disk at once.
echo force-unsafe-io >/etc/dpkg/dpkg.cfg.d/unsafe-io
printf 'path-exclude=/usr/share/%s/*\n' doc man locale >/etc/dpkg/dpkg.cfg.d/no-docs
# No service is started: the host's processes would be its neighbours.
printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
chmod 755 /usr/sbin/policy-rc.d
apt-get update -q
apt-get install -y -q --no-install-recommends "$@"
rm -rf /var/lib/apt/lists/*
# Where a run puts files of its own.
mkdir -p /host /src /disk /usr/lib/capstan
