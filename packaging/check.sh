#!/bin/sh
# Runs in a bare Debian with HAProxy: installs the package, has HAProxy serve with it, upgrades it
# under load, and purges it. `cargo xtask nightly packages` starts it in chroots.
#
# usage: check.sh PACKAGE LATER-PACKAGE
set -eu
export DEBIAN_FRONTEND=noninteractive
port=28443
place=$(mktemp -d)
cd "$place"

fail() {
    echo "check.sh: $*" >&2
    exit 1
}

files() {
    find / \( -path /proc -o -path /dev -o -path /run -o -path /tmp -o -path /var/log \
        -o -path /var/cache -o -path /var/lib/dpkg \) -prune -o -print | sort
}

# Clients for so many seconds, until one handshake fails.
clients() {
    for client in 1 2 3 4 5 6 7 8; do
        openssl s_time -connect 127.0.0.1:$port -new -time "$1" > "clients.$client" 2>&1 &
        echo $! > "client.$client"
    done
}

all_served() {
    for client in 1 2 3 4 5 6 7 8; do
        wait "$(cat "client.$client")" || fail "a handshake failed: $(cat "clients.$client")"
    done
}

on_lanes() {
    lockstep stat --total rsa2048
}

files > before
dpkg --install "$1"
[ ! -e /etc/lockstep ] || fail "installing made a configuration"
! openssl list -providers | grep -i lockstep || fail "installing changed what programs load"
man_pages=$(dpkg --listfiles lockstep | grep -c '/man1/.*\.gz$')
[ "$man_pages" -ge 8 ] || fail "$man_pages man pages"

lockstep install --server haproxy
variable=$(sed -n 's/^Environment=//p' /etc/systemd/system/haproxy.service.d/lockstep.conf)
env "$variable" lockstep doctor

openssl req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=localhost \
    -keyout site.key -out site.crt 2> /dev/null
cat site.crt site.key > site.pem
cat > haproxy.cfg <<END
global
    ssl-mode-async
    maxconn 200
    maxpipes 100
defaults
    mode http
    timeout client 10s
    timeout connect 5s
    timeout server 10s
frontend site
    bind 127.0.0.1:$port ssl crt $place/site.pem
    http-request return status 200 content-type text/plain string hello
END
env "$variable" haproxy -W -D -f haproxy.cfg -p haproxy.pid
clients 2
all_served
before=$(on_lanes)
[ "$before" -gt 0 ] || fail "HAProxy served no handshake on lanes"

# The upgrade while clients come, and then the reload with which the new module serves.
clients 12
sleep 2
dpkg --install "$2"
sleep 2
kill -USR2 "$(cat haproxy.pid)"
sleep 4
new=$(pgrep -n haproxy)
grep -q lockstep.so "/proc/$new/maps" || fail "the new worker has not loaded the module"
! grep lockstep.so "/proc/$new/maps" | grep deleted || fail "the new worker has the old module"
all_served
after=$(on_lanes)
[ "$after" -gt 0 ] || fail "HAProxy served no handshake on lanes after the upgrade"
echo "handshakes: $(cat clients.* | awk '/connections in .* real seconds/ { n += $1 } END { print n }')"
kill "$(cat haproxy.pid)"

dpkg --purge lockstep
files > after
diff before after || fail "removing the package left files, or took others"
