#!/bin/sh
# Boots the Debian in a directory: its systemd becomes process 1 of namespaces of its own, runs a
# unit of it, and ends with that. `cargo xtask nightly packages` starts this by unshare.
#
# usage: boot.sh DIRECTORY UNIT
set -eu
cd "$1"
# The root of a mount can become the root directory.
mount --bind . .
cd "$PWD"
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs -o mode=755 tmpfs dev
for node in null zero full random urandom tty; do
    touch dev/$node
    mount --bind /dev/$node dev/$node
done
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts dev/pts
mount -t tmpfs tmpfs dev/shm
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
ln -s fd/0 dev/stdin
ln -s fd/1 dev/stdout
ln -s fd/2 dev/stderr
pivot_root . mnt
cd /
umount -l mnt
# systemd mounts the credentials of a unit in a child, and the mount is to come back from there. On
# a machine it sets this itself; in a container it leaves that to whoever made it.
mount --make-rshared /
exec env -i container=lockstep PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    /lib/systemd/systemd --unit="$2" --log-target=console
