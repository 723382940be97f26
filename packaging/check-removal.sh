#!/bin/sh
# Runs as a service in a bare Debian that has HAProxy and whose process 1 is systemd. It removes the
# package in each order of the documented steps, while HAProxy runs with it and with a key of the
# key daemon, and ends the package's scripts before each of their commands. After a restart of HAProxy
# all must be as before: files, users, units and processes. `cargo xtask nightly packages` boots the
# system.
#
# usage: check-removal.sh PACKAGE
set -eu
export DEBIAN_FRONTEND=noninteractive
package=$1
port=28445
cd /root

fail() {
    echo "check-removal.sh: $*" >&2
    journalctl --no-pager --lines 60 >&2 || true
    exit 1
}

handshake() {
    openssl s_client -connect 127.0.0.1:$port -verify_return_error -CAfile site.crt \
        < /dev/null > client.log 2>&1 || fail "no handshake: $(cat client.log)"
}

case $package in
    *.rpm)
        # Directories of packages that every system with rpm has.
        mkdir -p /usr/lib64/ossl-modules /usr/share/licenses /usr/share/zsh/site-functions \
            /usr/share/fish/vendor_completions.d
        force=--force-debian
        command rpm $force --version > /dev/null 2>&1 || force=
        rpm() { command rpm $force "$@"; }
        install() { rpm --install --nodeps --noplugins "$package"; }
        upgrade() { rpm --upgrade --replacepkgs --nodeps --noplugins "$package"; }
        remove() { rpm --erase --noplugins lockstep; }
        purge() { ! rpm --query lockstep > /dev/null || remove; }
        ;;
    *)
        install() { dpkg --install "$package"; }
        upgrade() { dpkg --install "$package"; }
        remove() { dpkg --remove lockstep; }
        purge() { dpkg --purge lockstep; }
        ;;
esac

# All that a package may change.
state() {
    find /etc /opt /usr /srv /var/lib /dev/shm /tmp /run/lockstep* \
        \( -path /var/lib/dpkg -o -path /var/lib/rpm -o -path /var/lib/systemd \) -prune \
        -o -path '/tmp/systemd-private-*' -prune -o -printf '%p %m %u %l\n' 2> /dev/null | sort
    # useradd keeps a copy of what it changes.
    find /etc -type f ! -name '*-' -exec sha256sum {} + | sort -k 2
    getent passwd
    getent group
    systemctl list-units --all --plain --no-legend '*lockstep*' | grep -v lockstep-check || true
    systemctl show --property ExecStart,Environment,BindReadOnlyPaths haproxy |
        sed 's/ start_time=.*//'
    pgrep -a lockstep || true
}

as_before() {
    tries=0
    until state > state.after && diff state.before state.after > left; do
        tries=$((tries + 1))
        [ $tries -lt 30 ] || fail "$*: $(cat left)"
        sleep 1
    done
    echo "as before: $*"
}

set_up() {
    install > set-up.log
    lockstep install --server haproxy --keyd >> set-up.log
    systemctl daemon-reload
    systemctl restart haproxy
    handshake
    build=$(lockstep --version | cut -d ' ' -f 2)
    lockstep stat | grep -q ", lockstep $build, lanes" || fail "no process is of build $build"
    # Where it has no key, the daemon has signed.
    main=$(systemctl show --property MainPID --value haproxy)
    ! grep -q 'PRIVATE KEY' "/proc/$main/root/etc/haproxy/site.pem" || fail "HAProxy sees its key"
}

restart() {
    systemctl restart haproxy
    handshake
}

uninstall() {
    lockstep uninstall > uninstall.log
    systemctl daemon-reload
}

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
restart
# What others' processes say has no effect.
setpriv --reuid 65534 --clear-groups sh -c 'sleep 3600; :' sh /etc/lockstep/haproxy-global.cfg \
    /var/lib/lockstep-keyd/haproxy/ &
state > state.before

set_up
uninstall
restart
purge
as_before "uninstall, restart, purge"

set_up
uninstall
purge
handshake
restart
as_before "uninstall, purge, restart"

set_up
purge > purge.log
handshake
! grep -q '&& lockstep uninstall' purge.log || fail "it names a command that has gone: $(cat purge.log)"
systemctl is-active --quiet lockstep-removal lockstep-keyd &&
    systemctl is-enabled --quiet lockstep-removal || fail "nobody waits for the restart"
restart
as_before "purge, restart"

set_up
remove
restart
purge
as_before "remove, restart, purge"

set_up
purge
set_up
[ ! -e /var/lib/lockstep-removal.sh ] || fail "the installation has not ended the removal"
purge
restart
as_before "purge, install, purge, restart"

# As at a boot: servers have no lines any more, and nothing else has started.
set_up
purge
systemctl stop lockstep-removal haproxy lockstep-keyd.socket lockstep-keyd
rm /run/lockstep-keyd.sock
[ -e /etc/lockstep/haproxy-global.cfg ] || fail "HAProxy's file has gone before its restart"
systemctl start haproxy lockstep-removal
as_before "purge, boot"

# A reference that HAProxy's own configuration names keeps the package, and HAProxy starts.
set_up
cp /etc/haproxy/haproxy.cfg own.cfg
reference=$(echo /var/lib/lockstep-keyd/haproxy/*/site.pem)
sed -i "s,/etc/haproxy/site.pem,$reference," /etc/haproxy/haproxy.cfg
restart
! remove > remove.log 2>&1 || fail "a package went that HAProxy needs"
grep -q 'haproxy.cfg names references' remove.log || fail "no reason: $(cat remove.log)"
grep -q 'the package stays' remove.log || fail "the package did not stay: $(cat remove.log)"
systemctl daemon-reload
restart
cp own.cfg /etc/haproxy/haproxy.cfg
purge
restart
as_before "a reference that was named"

# HAProxy's file that its own options name stays, and HAProxy starts.
set_up
cp /etc/default/haproxy own.default
echo 'EXTRAOPTS="-S /run/haproxy-master.sock -f /etc/lockstep/haproxy-global.cfg"' \
    >> /etc/default/haproxy
restart
purge > purge.log 2>&1
grep -q '/etc/default/haproxy names /etc/lockstep/haproxy-global.cfg' purge.log ||
    fail "not told who names the file: $(cat purge.log)"
restart
while [ -e /var/lib/lockstep-removal.sh ]; do sleep 1; done
systemctl reload haproxy
handshake
cp own.default /etc/default/haproxy
restart
rm -r /etc/lockstep
as_before "a file that was named"

# An upgrade names the services that run the build before it.
set_up
upgrade > upgrade.log
for told in 'reload haproxy' 'restart lockstep-keyd'; do
    grep -q "systemctl $told.service" upgrade.log || fail "not told: $told: $(cat upgrade.log)"
done
systemctl reload haproxy
systemctl restart lockstep-keyd
upgrade > upgrade.log
purge
restart
as_before "an upgrade"

# Runs the package's script, and ends it before its command of this number.
cat > ended.sh <<'END'
number=$1
shift
exec bash -Tc 'trap "[ \$((++count)) != '"$number"' ] || kill -KILL \$\$" DEBUG; . "$0" "$@"' "$@"
END
ended() {
    status=0
    bash ended.sh "$@" > ended.log 2>&1 || status=$?
    [ $status = 137 ]
}

number=1
while :; do
    { install && lockstep install --server haproxy; } > set-up.log ||
        fail "no installation: $(cat set-up.log)"
    ended $number /usr/share/lockstep/package.sh removing || break
    purge > purge.log 2>&1 || fail "the package stays: $(cat purge.log)"
    as_before "removing ended before command $number"
    number=$((number + 1))
done
[ $number -gt 5 ] || fail "not ended: $(cat ended.log)"
purge
as_before "removing ended"

# rpm goes on without the last script, and then the boot is the remedy.
case $package in
    *.rpm) ;;
    *)
        script=/var/lib/dpkg/info/lockstep.postrm
        number=1
        install > set-up.log
        while cp $script postrm &&
            sed -i "s,sh \$rest removed,bash /root/ended.sh $number \$rest removed," $script &&
            ! purge > purge.log 2>&1; do
            cp postrm $script
            purge > purge.log 2>&1 || fail "the package stays: $(cat purge.log)"
            as_before "removed ended before command $number"
            number=$((number + 1))
            install > set-up.log
        done
        [ $number -gt 5 ] || fail "not ended: $(cat purge.log)"
        as_before "removed ended"
        ;;
esac
echo "check-removal.sh: done"
