#!/bin/sh
# Runs as a service in a bare Debian that has HAProxy and whose process 1 is systemd. It gives
# HAProxy's key to the key daemon by one command, restarts the daemon under load, kills it, and
# undoes all of it. `cargo xtask nightly packages` boots the system.
#
# usage: check-booted.sh PACKAGE.deb
set -eu
export DEBIAN_FRONTEND=noninteractive
port=28444
cd /root

fail() {
    echo "check-booted.sh: $*" >&2
    systemctl --no-pager --full status haproxy 'lockstep-keyd.*' >&2 || true
    journalctl --no-pager --lines 60 >&2 || true
    exit 1
}

handshake() {
    openssl s_client -connect 127.0.0.1:$port -verify_return_error -CAfile site.crt \
        < /dev/null > client.log 2>&1 || fail "no handshake: $(cat client.log)"
}

# Clients for so many seconds, which end where a handshake fails.
clients() {
    for client in 1 2 3 4; do
        openssl s_time -connect 127.0.0.1:$port -new -tls1_2 -time "$1" > "clients.$client" 2>&1 &
        echo $! > "client.$client"
    done
}

all_served() {
    for client in 1 2 3 4; do
        wait "$(cat "client.$client")" || fail "a handshake failed: $(cat "clients.$client")"
    done
}

main_of() {
    systemctl show --property MainPID --value "$1.service"
}

daemon() {
    main_of lockstep-keyd
}

# How many signatures the daemon has made since it started.
signed() {
    lockstep stat | awk -v pid="$(daemon)" '
        /^process / { own = $2 == pid }
        own && $1 == "rsa2048" { count = $2 }
        END { print count + 0 }'
}

dpkg --install "$1"
openssl req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=localhost \
    -keyout site.key -out site.crt 2> /dev/null
cat site.crt site.key > /etc/haproxy/site.pem
chmod 600 /etc/haproxy/site.pem
cat >> /etc/haproxy/haproxy.cfg <<END
frontend site
    mode http
    bind 127.0.0.1:$port ssl crt /etc/haproxy/site.pem
    http-request return status 200 content-type text/plain string hello
END
systemctl restart haproxy
handshake

lockstep install --server haproxy --keyd
systemctl daemon-reload
systemctl restart haproxy
handshake
[ "$(systemctl is-active lockstep-keyd.service)" = active ] || fail "the daemon does not run"
[ "$(stat -c %U "/proc/$(daemon)/status")" = root ] || fail "the daemon may be looked into"
user=$(awk '/^Uid:/ { print $2 }' "/proc/$(daemon)/status")
[ "$user" = "$(id -u lockstep-keyd)" ] || fail "the daemon runs as user $user"
# As a whole it is content only where the CPU has AVX-512 IFMA.
lockstep doctor --service haproxy > doctor.log || true
grep -q '^ok  *reference' doctor.log || fail "doctor is not content: $(cat doctor.log)"
before=$(signed)
handshake
[ "$(signed)" -gt "$before" ] || fail "the daemon has not signed"
# The service is shown a reference in the place of its key.
shown=/proc/$(main_of haproxy)/root/etc/haproxy/site.pem
grep -q 'LOCKSTEP KEY' "$shown" || fail "no reference is shown"
! grep -q 'PRIVATE KEY' "$shown" || fail "HAProxy sees the key"
grep -q lockstep.so "/proc/$(pgrep -n haproxy)/maps" || fail "the worker has not loaded the module"
# What the sandbox leaves open, from 0 to 10.
systemd-analyze security --no-pager --threshold=20 lockstep-keyd.service > security ||
    fail "the daemon's sandbox is open: $(cat security)"
tail -1 security

# The exporter, in its sandbox, sees the counters of root's servers, and no key.
metrics() {
    perl -MIO::Socket::INET -e 'my $s = IO::Socket::INET->new("127.0.0.1:9793") or die;
        print $s "GET /metrics HTTP/1.0\r\n\r\n"; print while <$s>'
}
systemctl start lockstep-exporter.socket
metrics > first.metrics
grep -q '^lockstep_service_loaded{service="haproxy.service"} 1' first.metrics ||
    fail "the exporter does not see HAProxy: $(cat first.metrics)"
exporter=$(main_of lockstep-exporter)
[ "$(awk '/^Uid:/ { print $2 }' "/proc/$exporter/status")" != 0 ] || fail "the exporter is root"
for hidden in etc/haproxy etc/shadow root/site.key home/* run/systemd/private; do
    for path in "/proc/$exporter/root/"$hidden; do
        [ ! -e "$path" ] || fail "the exporter sees $path"
    done
done
systemd-analyze security --no-pager --threshold=20 lockstep-exporter.service > security ||
    fail "the exporter's sandbox is open: $(cat security)"
tail -1 security
systemctl stop lockstep-exporter.socket lockstep-exporter.service

# A restart fails no handshake.
clients 6
sleep 2
first=$(daemon)
# HAProxy has logged clients of doctor, which close as soon as they can, as failures.
since=$(date +%s)
systemctl restart lockstep-keyd.service
all_served
[ "$(daemon)" != "$first" ] || fail "the daemon was not restarted"
[ "$(signed)" -gt 0 ] || fail "the new daemon has not signed"
! journalctl --no-pager --unit haproxy --since "@$since" | grep 'handshake failure' ||
    fail "a handshake failed"

# Where it is killed, systemd starts it again.
first=$(daemon)
kill -9 "$first"
tries=0
until [ "$(daemon)" != "$first" ] && [ "$(daemon)" != 0 ]; do
    tries=$((tries + 1))
    [ $tries -lt 100 ] || fail "systemd has not started the daemon again"
    sleep 0.1
done
handshake
! journalctl --no-pager --unit lockstep-keyd.service | grep -i 'permitted\|denied\|SIGSYS' ||
    fail "the sandbox denied something"

# The daemon says how much memory the rings of all clients may take, where that is too much.
mkdir -p /etc/systemd/system/lockstep-keyd.service.d
printf '[Service]\nMemoryMax=128M\n' > /etc/systemd/system/lockstep-keyd.service.d/small.conf
systemctl daemon-reload
systemctl restart lockstep-keyd.service
lockstep keyd check | grep -q 'it may have 128 MiB' ||
    fail "no word of a limit of memory that is too low"
# Where control groups of this version count memory.
if [ -e /sys/fs/cgroup/system.slice/lockstep-keyd.service/memory.max ]; then
    journalctl --no-pager --unit lockstep-keyd.service | grep -q 'it may have 128 MiB' ||
        fail "the daemon does not say that its limit of memory is too low"
fi
rm -r /etc/systemd/system/lockstep-keyd.service.d
systemctl daemon-reload
systemctl restart lockstep-keyd.service
handshake

lockstep uninstall --server haproxy
systemctl daemon-reload
systemctl restart haproxy
handshake
grep -q 'PRIVATE KEY' "/proc/$(main_of haproxy)/root/etc/haproxy/site.pem" || fail "no key is shown"
! grep -q lockstep.so "/proc/$(pgrep -n haproxy)/maps" || fail "the worker still loads the module"
systemctl stop lockstep-keyd.socket lockstep-keyd.service
[ "$(systemctl is-enabled lockstep-keyd.socket)" = disabled ] || fail "the daemon is still enabled"

# A reference that HAProxy's own configuration names keeps the package, and HAProxy starts.
lockstep install --server haproxy --keyd
reference=$(echo /etc/lockstep/references/haproxy/*.pem)
sed -i "s,/etc/haproxy/site.pem,$reference," /etc/haproxy/haproxy.cfg
systemctl daemon-reload
systemctl restart haproxy
handshake
! apt-get remove --yes lockstep > remove.log 2>&1 || fail "a package went that HAProxy needs"
grep -q 'haproxy.cfg names references' remove.log || fail "no reason: $(cat remove.log)"
grep -q 'the package stays' remove.log || fail "the package did not stay: $(cat remove.log)"
systemctl daemon-reload
systemctl restart haproxy
before=$(signed)
handshake
[ "$(signed)" -gt "$before" ] || fail "the daemon has not signed"
# As the remedy has it.
sed -i "s,$reference,/etc/haproxy/site.pem," /etc/haproxy/haproxy.cfg
apt-get remove --yes lockstep > remove.log 2>&1 || fail "the package stays: $(cat remove.log)"
systemctl daemon-reload
systemctl restart haproxy
handshake
! grep -q lockstep.so "/proc/$(pgrep -n haproxy)/maps" || fail "the worker still loads the module"
dpkg --purge lockstep
[ ! -e /etc/lockstep ] || fail "files are left"
echo "check-booted.sh: done"
