#!/bin/bash
# Boot this system's systemd over a copy of the root folder that exists in memory alone, with the
# units of deploy/systemd, and run PROBE in it. To be started in a mount namespace of its own:
# unshare --mount boot_units.sh
#   FOLDER  empty, for the copy          PARTS   a server's and an agent's folder: server, depot
#   BASE    the prefix of Python         VENV    the environment that has fedldp
#   SOURCE  the checkout
#   PROBE   a script, whose output goes to OUT/probe.log
# systemd-nspawn gives it a cgroup and a network of its own and makes /proc/sys and /sys read-only;
# what would change settings of the kernel or of devices is masked all the same.
set -eu
mount -t tmpfs tmpfs "$FOLDER"
mkdir "$FOLDER/upper" "$FOLDER/work" "$FOLDER/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$FOLDER/upper,workdir=$FOLDER/work" "$FOLDER/root"
root=$FOLDER/root units=$FOLDER/root/etc/systemd/system

# As the comments of the units say.
systemd-sysusers --root="$root" "$SOURCE/deploy/systemd/fedldp.conf"
mkdir -p "$root/var/lib/fedldp" "$root/var/lib/fedldp-network" "$root/opt/python" \
  "$root/opt/fedldp" "$root/opt/source" "$root/out"
cp -a "$PARTS/server" "$root/var/lib/fedldp-server"
cp -a "$PARTS/depot" "$root/var/lib/fedldp/depot"
mv "$root/var/lib/fedldp/depot/network" "$root/var/lib/fedldp-network/depot"
chroot "$root" chown -R fedldp-server: /var/lib/fedldp-server
chroot "$root" chown -R fedldp-agent: /var/lib/fedldp/depot
chroot "$root" chown -R fedldp-network: /var/lib/fedldp-network/depot

# The units hide /root, /home and /tmp, where interpreter, environment and checkout may be: there
# they are called /opt/python, /opt/fedldp and /opt/source. What names its own place is rewritten.
site=$(cd "$VENV" && echo lib/python3*/site-packages)
mkdir -p "$FOLDER/environment/bin" "$FOLDER/environment/$site" "$FOLDER/changes"
sed "s|$BASE|/opt/python|" "$VENV/pyvenv.cfg" > "$FOLDER/environment/pyvenv.cfg"
for file in "$VENV"/bin/*; do
  copy=$FOLDER/environment/bin/${file##*/}
  case $file in
    */python*) ln -s /opt/python/bin/python3 "$copy" ;;
    *) sed "s|$VENV|/opt/fedldp|g" "$file" > "$copy" && chmod 755 "$copy" ;;
  esac
done
for file in "$VENV/$site"/*.pth; do
  sed "s|$SOURCE|/opt/source|g" "$file" > "$FOLDER/environment/$site/${file##*/}"
done
chmod -R a+rX "$FOLDER/environment"
echo /opt/python/lib > "$root/etc/ld.so.conf.d/python.conf"
mount --bind "$BASE" "$root/opt/python"
chroot "$root" ldconfig
umount "$root/opt/python"
ln -sf /opt/fedldp/bin/fedldp "$root/usr/local/bin/fedldp"

find "$units" -mindepth 1 -delete
cp "$SOURCE"/deploy/systemd/*.service "$SOURCE"/deploy/systemd/*.timer "$units/"
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
ExecStopPost=/bin/sh -c "systemctl poweroff > /dev/null 2>&1"
StandardOutput=file:/out/probe.log
StandardError=inherit
UNIT
cat > "$units/fleet.target" << UNIT
[Unit]
Requires=basic.target
After=basic.target
Wants=fedldp-server.service fedldp-agent@depot.service probe.service
UNIT
exec systemd-nspawn --quiet --directory "$root" --register=no --keep-unit --private-network \
  --bind="$OUT:/out" --bind-ro="$BASE:/opt/python" --bind-ro="$SOURCE:/opt/source" \
  --overlay="$VENV:$FOLDER/environment:$FOLDER/changes:/opt/fedldp" --console=pipe --boot \
  -- systemd.unit=fleet.target
