#!/bin/sh
# For who is root in mount and process namespaces of his own: layers.sh PLACE SHARED [PACKAGE...]
#
# Makes this machine's files, under a layer in memory, the root of every process of the mount namespace, and removes
# the packages there. PLACE is an empty directory to mount on; SHARED one that is the same inside and outside.
# Exits 77, having said why, where the kernel refuses such a root.
set -eu
place=$1 shared=$2
shift 2

mount -t tmpfs -o size=3g layers "$place"
mkdir "$place/changes" "$place/work" "$place/root"
root=$place/root
mount -t overlay -o "lowerdir=/,upperdir=$place/changes,workdir=$place/work" layers "$root" || exit 77
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/dev/shm"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mkdir -p "$root$shared"
mount --rbind "$shared" "$root$shared"
# It may be a link into /run.
cp -L --remove-destination /etc/resolv.conf "$root/etc/resolv.conf" 2>/dev/null || true
cd "$root"
pivot_root . mnt
cd /
umount -l /mnt

# Of what is installed there nothing starts by itself.
printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
chmod 755 /usr/sbin/policy-rc.d
# Nobody reads the manuals.
rm -f /var/lib/man-db/auto-update
# Where newer ones are known, what is removed may be exchanged for them.
rm -rf /var/lib/apt/lists/*
installed=$(dpkg-query -W -f '${db:Status-Abbrev}${Package}\n' "$@" 2>/dev/null | sed -n 's/^ii *//p')
[ -z "$installed" ] || DEBIAN_FRONTEND=noninteractive apt-get purge -y $installed </dev/null
