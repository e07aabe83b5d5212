#!/usr/bin/env bash
# Lays out the root of a small machine and becomes its systemd: machine_boot.sh ROOT PROGRAM UNIT SETTINGS. The caller has made the namespaces.
# Of the host the machine has /usr, to read; of the host's units it has the few that a service needs, so that nothing
# else starts and nothing of the host is changed.
set -euo pipefail
root="$1" program="$2" unit="$3" settings="$4"
mount --make-rprivate /
mount -t tmpfs -o mode=755 machine "$root"
mkdir -p "$root"/{usr,etc/systemd/system,etc/pumice,var/lib,var/log,run,proc,sys,dev,root,tmp,old}
chmod 1777 "$root/tmp"
for folder in bin sbin lib lib64; do ln -s "usr/$folder" "$root/$folder"; done
mount --bind /usr "$root/usr"
mount -o remount,bind,ro "$root/usr"

units="$(mktemp -d)"
for name in basic.target exit.target multi-user.target network-online.target network.target paths.target shutdown.target slices.target \
  sockets.target sysinit.target timers.target umount.target systemd-exit.service \
  systemd-journald.service systemd-journald.socket systemd-journald-dev-log.socket; do
  cp "/usr/lib/systemd/system/$name" "$units/"
done
mount -t tmpfs -o mode=755 units "$root/usr/lib/systemd/system"
cp "$units"/* "$root/usr/lib/systemd/system/"
rm -r "$units"
mkdir "$root/usr/lib/systemd/system/sysinit.target.wants"
ln -s ../systemd-journald.service "$root/usr/lib/systemd/system/sysinit.target.wants/"
mount -t tmpfs -o mode=755 local "$root/usr/local"
mkdir "$root/usr/local/bin"
touch "$root/usr/local/bin/pumice"
mount --bind "$program" "$root/usr/local/bin/pumice"
install -m 644 "$unit" "$root/etc/systemd/system/pumice.service"
install -m 644 "$settings" "$root/etc/pumice/pumice.yaml"

mount -t proc proc "$root/proc"
mount --bind "$root/proc/sys" "$root/proc/sys"
mount -o remount,bind,ro "$root/proc/sys"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=755 dev "$root/dev"
for device in null zero full random urandom tty; do
  touch "$root/dev/$device"
  mount --bind "/dev/$device" "$root/dev/$device"
done
mkdir "$root/dev/shm" "$root/dev/pts"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
mount -t tmpfs -o mode=1777 shm "$root/dev/shm"
mount -t tmpfs -o mode=755 run "$root/run"

printf 'root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n' >"$root/etc/passwd"
printf 'root:x:0:\nnogroup:x:65534:\n' >"$root/etc/group"
printf 'passwd: files systemd\ngroup: files systemd\n' >"$root/etc/nsswitch.conf"
echo 5d1c0b5e7a3f4e0f9c52a6b1d4e8f701 >"$root/etc/machine-id"
ip link set lo up

cd "$root"
pivot_root . old
umount -l /old
# systemd leaves the kernel's settings and devices alone where it finds itself in a container.
export container=pumice-check
exec /usr/lib/systemd/systemd --system --unit=multi-user.target --log-target=journal --show-status=no
