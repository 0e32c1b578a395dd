#!/bin/sh
# Builds and signs the modules, and makes what Secure Boot needs. Runs in a chroot of the guest's tree, with the folder
# of the result at /mnt and the sources in /mnt/src.
set -eu
export TMPDIR=/mnt/src LC_ALL=C
cd /mnt/src
kernel=$(ls /lib/modules)
make -s -C "/lib/modules/$kernel/build" M=/mnt/src modules

# The kernel as QEMU can start it without the firmware: unpacking it under emulation takes seconds of every boot. Where it
# lies in the image is in the header of the boot protocol; the last four bytes of it are its size.
image=/boot/vmlinuz-$kernel
number() { od -A n -t "u$2" -j "$1" -N "$2" "$image" | tr -d ' '; }
start=$((($(number 497 1) + 1) * 512 + $(number 584 4)))
tail -c "+$((start + 1))" "$image" | head -c $(($(number 588 4) - 4)) >kernel.zst
/usr/lib/apt/apt-helper cat-file "$PWD/kernel.zst" >/mnt/vmlinux || rm -f /mnt/vmlinux

# One key for everything: the firmware trusts it, and through the firmware's list the kernel does for modules.
mkdir -p /mnt/keys
cd /mnt/keys
openssl req -x509 -newkey rsa:2048 -nodes -days 3650 -subj '/CN=Capstan test key/' \
  -addext extendedKeyUsage=codeSigning -keyout key.pem -out certificate.pem 2>/dev/null
openssl x509 -in certificate.pem -outform DER -out certificate.der
# Another, that nobody trusts.
openssl req -x509 -newkey rsa:2048 -nodes -days 3650 -subj '/CN=Capstan foreign key/' \
  -keyout foreign.pem -out foreign-certificate.pem 2>/dev/null

# Unsigned ones stay beside the signed ones: a test may want to see them refused.
modules=/mnt/layer/usr/lib/capstan/modules
mkdir -p "$modules/unsigned" "$modules/foreign"
sign() { "$(ls -d /usr/lib/linux-kbuild-*)/scripts/sign-file" sha256 "$@"; }
for module in fakepci nvidia nvidia-uvm; do
  cp "/mnt/src/$module.ko" "$modules/unsigned/"
  sign key.pem certificate.der "/mnt/src/$module.ko" "$modules/$module.ko"
  sign foreign.pem foreign-certificate.pem "/mnt/src/$module.ko" "$modules/foreign/$module.ko"
done

sbsign --key key.pem --cert certificate.pem --output /mnt/vmlinuz.signed "$image" 2>/dev/null
owner=8be4df61-93ca-11d2-aa0d-00e098032b8c
virt-fw-vars --input /usr/share/OVMF/OVMF_VARS_4M.fd --output /mnt/firmware-variables.fd --loglevel WARNING \
  --set-pk $owner certificate.pem --add-kek $owner certificate.pem --add-db $owner certificate.pem --secure-boot
rm -rf /mnt/src
