#!/bin/bash
# Boot this system's systemd over a copy of the root folder that exists in memory alone, and run
# PROBE in it. To be started in a mount namespace of its own: unshare --mount boot_systemd.sh
#   FOLDER  empty, for the copy          FLEET  a fleet's folder, with one gateway
#   BASE    the prefix of Python         VENV   the environment that has fedldp
#   PROBE   a script, whose output goes to OUT/probe.log
# systemd-nspawn gives it a cgroup and a network of its own and makes /proc/sys and /sys read-only;
# what would change settings of the kernel or of devices is masked all the same.
set -eu
mount -t tmpfs tmpfs "$FOLDER"
mkdir "$FOLDER/upper" "$FOLDER/work" "$FOLDER/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$FOLDER/upper,workdir=$FOLDER/work" "$FOLDER/root"
root=$FOLDER/root units=$FOLDER/root/etc/systemd/system

chroot "$root" groupadd --system fedldp
for user in server gateway vault; do
  chroot "$root" useradd --system --no-create-home --shell /usr/sbin/nologin "fedldp-$user"
done
mkdir -p "$root/var/lib/fedldp" "$root/opt/python" "$root/out"
for part in server gateway-1 vault-1; do
  cp -a "$FLEET/$part" "$root/var/lib/fedldp/"
  user=fedldp-${part%-1}
  chroot "$root" chown -R "$user:$user" "/var/lib/fedldp/$part"
done

# ProtectHome=yes hides /root, where the interpreter may be: it is called /opt/python there.
for link in "$VENV"/bin/python*; do
  ln -sf /opt/python/bin/python3 "$root$link"
done
sed -i "s|$BASE|/opt/python|" "$root$VENV/pyvenv.cfg"
echo /opt/python/lib > "$root/etc/ld.so.conf.d/python.conf"
mount --bind "$BASE" "$root/opt/python"
chroot "$root" ldconfig
umount "$root/opt/python"
ln -sf "$VENV/bin/fedldp" "$root/usr/local/bin/fedldp"

find "$units" -mindepth 1 -delete
cp "$FLEET"/systemd/* "$units/"
for name in sysctl udevd udev-trigger tmpfiles-setup tmpfiles-setup-dev tmpfiles-clean modules-load \
  networkd resolved timesyncd random-seed remount-fs; do
  ln -s /dev/null "$units/systemd-$name.service"
done
ln -s /dev/null "$units/systemd-udevd-control.socket"
ln -s /dev/null "$units/systemd-udevd-kernel.socket"
: > "$root/etc/fstab"
cp "$PROBE" "$root/opt/probe.sh"
cat > "$units/probe.service" << UNIT
[Service]
Type=oneshot
ExecStart=/bin/bash /opt/probe.sh
ExecStopPost=/usr/bin/systemctl poweroff
StandardOutput=file:/out/probe.log
StandardError=inherit
UNIT
cat > "$units/fleet.target" << UNIT
[Unit]
Requires=basic.target
After=basic.target
Wants=fedldp-server@server.socket fedldp-server@server.service fedldp-vault@vault-1.service
Wants=fedldp-uplink@gateway-1.socket fedldp-gateway@gateway-1.service probe.service
UNIT
exec systemd-nspawn --quiet --directory "$root" --register=no --keep-unit --private-network \
  --bind="$OUT:/out" --bind-ro="$BASE:/opt/python" --console=pipe --boot -- systemd.unit=fleet.target
