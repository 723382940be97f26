#!/bin/sh
# Runs in a bare Debian with HAProxy and systemd's programs: installs the package, has HAProxy serve
# with it and with a key of the key daemon, upgrades it under load, goes back to the release before
# and forth again with each side restarted in any order, and removes all of it.
# `cargo xtask nightly packages` starts it in chroots, in which systemd itself does not run.
#
# usage: check.sh PACKAGE LATER-PACKAGE PACKAGE-OF-THE-RELEASE-BEFORE
#   all .deb, or all .rpm: the latter by rpm, whose database in Debian knows no other package
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
        -o -path /var/cache -o -path /var/lib/dpkg -o -path /var/lib/rpm \
        -o -path /root/.rpmdb \) -prune -o -print | sort
}

case $1 in
    *.rpm)
        # Directories of packages that every system with rpm has.
        mkdir -p /usr/lib64/ossl-modules /usr/share/licenses /usr/share/zsh/site-functions \
            /usr/share/fish/vendor_completions.d
        # Some releases of Debian ask for this.
        force=--force-debian
        command rpm $force --version > /dev/null 2>&1 || force=
        rpm() { command rpm $force "$@"; }
        # A plugin of newer versions changes mounts, which takes more than a chroot.
        install() { rpm --install --nodeps --noplugins "$1"; }
        upgrade() { rpm --upgrade --oldpackage --replacepkgs --nodeps --noplugins "$1"; }
        # Each file as it was packaged, but for times: a check that nothing is missing or changed.
        whole() { rpm --verify --nodeps lockstep; }
        listed() { rpm --query --list lockstep; }
        remove() { rpm --erase --noplugins lockstep; }
        ;;
    *)
        install() { dpkg --install "$1"; }
        upgrade() { dpkg --install "$1"; }
        whole() { ! dpkg --verify lockstep | grep .; }
        listed() { dpkg --listfiles lockstep; }
        remove() { dpkg --purge lockstep; }
        ;;
esac

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

users() {
    getent passwd
    getent group
}

files > before
users > users.before
install "$1"
whole || fail "a file of the package is missing or changed"
[ ! -e /etc/lockstep ] || fail "installing made a configuration"
! openssl list -providers | grep -i lockstep || fail "installing changed what programs load"
man_pages=$(listed | grep -c '/man1/.*\.gz$')
[ "$man_pages" -ge 8 ] || fail "$man_pages man pages"

for page in $(listed | grep '\.md$'); do
    for link in $(grep -o '](\([^)]*\))' "$page" | sed 's/^](//; s/)$//; s/#.*//' | grep -v ://); do
        [ -e "$(dirname "$page")/$link" ] || fail "$page links to $link, which is not there"
    done
done

listed | grep -q '/man1/lockstep-keyd\.1\.gz$' || fail "no man page of the key daemon"
getent passwd lockstep-keyd > /dev/null || fail "no user for the key daemon"
systemd-analyze verify --man=no lockstep-keyd.service lockstep-keyd.socket \
    lockstep-exporter.service lockstep-exporter.socket

# Has HAProxy's script of init load a configuration, as the command says where no systemd runs. It
# fails until that is done.
loaded_by_script() {
    ! lockstep install --server haproxy "$@" > install.log 2>&1 || fail "$(cat install.log)"
    line=$(sed -n 's,^remedy: add the line `\([^`]*\)` to /etc/default/haproxy.*,\1,p' install.log)
    [ -n "$line" ] || fail "no line for /etc/default/haproxy: $(cat install.log)"
    { cat default; echo "$line"; } > /etc/default/haproxy
    lockstep install --server haproxy "$@"
    variable=${line#export }
}

cp /etc/default/haproxy default
loaded_by_script
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

# With the key in the key daemon. systemd would show HAProxy a reference in the place of its key;
# here its configuration names the reference.
chmod 600 site.pem
chmod 755 .
loaded_by_script --keyd --key "$place/site.pem" --user haproxy
reference=$(sed -n "s,^BindReadOnlyPaths=\(.*\):$place/site.pem\$,\1,p" \
    /etc/systemd/system/haproxy.service.d/lockstep-keyd.conf)
[ -n "$reference" ] || fail "no reference for HAProxy"
# Only HAProxy's settings allow references.
grep -q '^references = yes$' "${variable#*=}" || fail "$variable allows no references"
lockstep keyd > keyd.log 2>&1 &
keyd=$!
until [ -e /run/lockstep-keyd.sock ]; do sleep 0.1; done
lockstep keyd wait
runuser -u haproxy -- lockstep doctor --reference "$reference" ||
    fail "HAProxy's user cannot sign: $(cat keyd.log)"
sed "s,$place/site.pem,$reference,; s/^global/global\n    user haproxy/" haproxy.cfg > keyd.cfg
env "$variable" haproxy -W -D -f keyd.cfg -p haproxy.pid
clients 2
all_served
lockstep stat | grep -A 9 ' lockstep-keyd,' | grep -q '  rsa2048 ' ||
    fail "the key daemon signed nothing"

# Starts the daemon of the installed package, which replaces the socket. Then ends the previous
# daemon, as in the manual.
restart_daemon() {
    before=$keyd
    lockstep keyd > keyd.log 2>&1 &
    keyd=$!
    until [ "$(stat -c %i /run/lockstep-keyd.sock)" != "$socket" ]; do
        kill -0 "$keyd" || fail "no daemon: $(cat keyd.log)"
        sleep 0.1
    done
    socket=$(stat -c %i /run/lockstep-keyd.sock)
    kill "$before"
    wait "$before" || fail "the daemon before did not end well"
}

# The new worker loads the module of the package that is installed.
restart_server() {
    kill -USR2 "$(cat haproxy.pid)"
    sleep 2
    ! grep lockstep.so "/proc/$(pgrep -n haproxy)/maps" | grep deleted ||
        fail "the new worker has the old module"
}

# Replaces the package, and nothing is restarted by that.
package() {
    running=$(pgrep haproxy) daemon=$keyd
    upgrade "$1"
    [ "$(pgrep haproxy)" = "$running" ] || fail "HAProxy was restarted by the package"
    kill -0 "$daemon" || fail "the daemon was ended by the package"
}

# One step while clients come, and the handshakes after it.
under_load() {
    echo "under load: $*"
    clients 6
    sleep 1
    "$@"
    all_served
    clients 1
    all_served
}

# Each side of this release and of the one before, in any order, down and up.
socket=$(stat -c %i /run/lockstep-keyd.sock)
under_load package "$3"
under_load restart_server
under_load restart_daemon
under_load package "$1"
under_load restart_daemon
under_load restart_server
under_load package "$3"
under_load restart_daemon
under_load restart_server
under_load package "$1"
under_load restart_server
under_load restart_daemon
kill "$(cat haproxy.pid)" "$keyd"
wait "$keyd" || true
rm -f /run/lockstep-keyd.sock
while pgrep haproxy > /dev/null; do sleep 0.1; done

env "$variable" haproxy -W -D -f haproxy.cfg -p haproxy.pid
clients 2
all_served
before=$(on_lanes)
[ "$before" -gt 0 ] || fail "HAProxy served no handshake on lanes"

# The upgrade while clients come, and then the reload with which the new module serves.
clients 12
sleep 2
upgrade "$2"
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

cp default /etc/default/haproxy
remove
files > after
diff before after || fail "removing the package left files, or took others"
users > users.after
diff users.before users.after || fail "removing the package left its user, or took another"
