#!/bin/sh
# Runs as a service in a bare Debian that has HAProxy and whose process 1 is systemd. It gives
# HAProxy the lanes by the manual's lines, and takes them back by one. Then it gives HAProxy's key
# to the key daemon, restarts the daemon under load, kills it, keeps keys encrypted by the lines of
# keyd.md, which lies beside it, and undoes all of it. `cargo xtask nightly packages` boots the
# system. /srv has the repository and the manual's page about it.
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

# With the site, or with another port and certificate.
handshake() {
    openssl s_client -connect "127.0.0.1:${1:-$port}" -verify_return_error \
        -CAfile "${2:-site.crt}" \
        < /dev/null > client.log 2>&1 || fail "no handshake: $(cat client.log)"
}

# Clients of a port for so many seconds, which end where a handshake fails. There are four, or as
# many as are asked for.
clients() {
    many=${3:-4}
    for client in $(seq "$many"); do
        openssl s_time -connect "127.0.0.1:${2:-$port}" -new -tls1_2 -time "$1" \
            > "clients.$client" 2>&1 &
        echo $! > "client.$client"
    done
}

all_served() {
    for client in $(seq "$many"); do
        wait "$(cat "client.$client")" || fail "a handshake failed: $(cat "clients.$client")"
    done
}

# Prints the CPU time that HAProxy's worker takes for a handshake, with 64 clients.
cost() {
    worker=$(pgrep -n haproxy)
    began=$(ticks "$worker")
    clients 8 $port 64
    all_served
    cat clients.* | awk -v ticks=$(($(ticks "$worker") - began)) -v hz="$(getconf CLK_TCK)" \
        -v what="$1" '/ connections in .* real seconds/ { handshakes += $1 }
        END { printf "%s: %.0f us of CPU per handshake, %d handshakes of 64 clients\n",
            what, ticks / hz / handshakes * 1e6, handshakes }'
    rm clients.* client.[0-9]*
}

# What a process has used of the CPU.
ticks() {
    awk '{ sub(/^.*\) /, ""); print $12 + $13 }' "/proc/$1/stat"
}

main_of() {
    systemctl show --property MainPID --value "$1.service"
}

daemon() {
    main_of lockstep-keyd
}

# Prints the number of signatures that the daemon has made since its start.
signed() {
    lockstep stat | awk -v pid="$(daemon)" '
        /^process / { own = $2 == pid }
        own && $1 == "rsa2048" { count = $2 }
        END { print count + 0 }'
}

# The lines of a page of the manual for an occasion.
lines() {
    awk -v start="^ *\`\`\`sh $1\$" '/^ *```/ { on = $0 ~ start; next }
        on { sub(/^  /, ""); printf sub(/\\$/, "") ? "%s" : "%s\n", $0 }' "${2:-keyd.md}"
}

# One of the lines from nothing to HAProxy on lanes.
step() {
    lines apt /srv/installation.md | sed -n "$1p" > line.sh
    [ -s line.sh ] || fail "installation.md has no line $1"
    sh -eu line.sh || fail "the manual's line $1 does not work"
}

follow() {
    lines "$1" > lines.sh
    [ -s lines.sh ] || fail "keyd.md has no lines for $1"
    sh -eu lines.sh || fail "the manual's lines for $1 do not work"
}

# Doctor says this about HAProxy: the word before it is of each line on that question. A fault is in
# the status, too. Without AVX-512 IFMA doctor always finds one, with the lanes.
told() {
    doctor=0
    lockstep doctor --service haproxy > doctor.log || doctor=$?
    grep -q "^$1  *$2" doctor.log || fail "doctor does not say '$1 $2': $(cat doctor.log)"
    case $1 in
    FAILED) [ $doctor -ne 0 ] || fail "doctor finds a fault and ends with 0: $(cat doctor.log)" ;;
    *) ! grep "^FAILED  *${2%% *}" doctor.log || fail "doctor also finds a fault there" ;;
    esac
}

# Paths of a plain key and its certificate in the manual.
plain=/etc/ssl/private/www.pem
kept=28445

new_key() {
    openssl req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=localhost \
        -keyout $plain -out www.crt 2> /dev/null
    secret=$(sed -n 2p $plain)
    cat www.crt >> $plain
}

# The daemon signs with a key that is on the disk only in encrypted form.
signs_at_rest() {
    rm $plain
    ! grep -rlF -e "$secret" /boot /etc /home /opt /root /srv /tmp /usr /var ||
        fail "$1: the key is on the disk in plain"
    before=$(signed)
    handshake $kept www.crt
    [ "$(signed)" -gt "$before" ] || fail "$1: the daemon has not signed"
    echo "key at rest: $1"
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
systemctl restart haproxy
handshake
cost "OpenSSL alone"

# As if the administrator said yes, with the release's own packages there.
echo 'APT::Get::Assume-Yes "true";' > /etc/apt/apt.conf.d/yes
: > /etc/apt/sources.list
mv /srv/first /srv/lockstep
start=$(date +%s%N)
step 1
step 2
took=$(($(date +%s%N) - start))

# One command brings handshakes of many clients to lanes, and one takes all of it back.
tree() {
    find /etc -type f -exec sha256sum {} + | sort -k 2
    find /etc ! -type f -printf '%p %m %l\n' | sort
}
tree > tree.before
start=$(date +%s%N)
step 3
handshake
took=$(((took + $(date +%s%N) - start) / 1000000))
cost "after install"
tr '\0' ' ' < "/proc/$(main_of haproxy)/cmdline" | grep -q haproxy-global.cfg ||
    fail "HAProxy has not read the lines"
told ok loaded
if grep -q avx512ifma /proc/cpuinfo; then
    [ "$(lockstep stat --total rsa2048)" -gt 0 ] || fail "no handshake on lanes: $(lockstep stat)"
    echo "to lanes: $(lines apt /srv/installation.md | grep -c .) lines, $took ms"
fi
lockstep uninstall --server haproxy
systemctl daemon-reload
systemctl restart haproxy
handshake
! grep -q lockstep.so "/proc/$(pgrep -n haproxy)/maps" || fail "the worker still loads the module"
# It has left the lines for as long as HAProxy ran with them.
lockstep uninstall --server haproxy
tree > tree.after
diff tree.before tree.after || fail "uninstall left files, or took others"

lockstep install --server haproxy --keyd
systemctl daemon-reload
systemctl restart haproxy
handshake
[ "$(systemctl is-active lockstep-keyd.service)" = active ] || fail "the daemon does not run"
[ "$(stat -c %U "/proc/$(daemon)/status")" = root ] || fail "the daemon may be looked into"
user=$(awk '/^Uid:/ { print $2 }' "/proc/$(daemon)/status")
[ "$user" = "$(id -u lockstep-keyd)" ] || fail "the daemon runs as user $user"
told ok reference
kill -STOP "$(daemon)"
told FAILED 'reference .* the key daemon did'
kill -CONT "$(daemon)"
systemctl stop lockstep-keyd.socket lockstep-keyd.service
told FAILED 'reference .* cannot be reached'
systemctl start lockstep-keyd.socket
systemctl stop haproxy
told FAILED 'process .* no process of haproxy runs'
systemctl start haproxy
told ok reference
before=$(signed)
handshake
[ "$(signed)" -gt "$before" ] || fail "the daemon has not signed"
# The service sees a reference in the place of its key.
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

# systemd restarts a killed daemon.
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

# The daemon reports the memory of all rings if it exceeds the limit.
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

# Keys that are encrypted on the disk, by the lines of the manual. A renewal fails no handshake.
cp /etc/haproxy/haproxy.cfg haproxy.cfg
cp /etc/lockstep/keyd.conf keyd.conf
new_key
follow credential
lockstep keyd wait
echo "    bind 127.0.0.1:$kept ssl crt /var/lib/lockstep-keyd/www/www" >> /etc/haproxy/haproxy.cfg
systemctl restart haproxy
signs_at_rest "a key of the system"
told ok 'reference .*/www/www stands'
[ "$(grep -c '^ok  *reference' doctor.log)" = 2 ] ||
    fail "doctor does not know both keys: $(cat doctor.log)"
first=$(cat www.crt)
new_key
clients 6 $kept
sleep 1
follow credential-renew
all_served
[ "$(cat www.crt)" != "$first" ] || fail "the key is not new"
signs_at_rest "a key of the system, renewed"

# A TPM2, which systemd reaches by its own name for a device.
if command -v swtpm > /dev/null; then
    mkdir -p /var/lib/tpm2 /etc/systemd/system.conf.d
    tpm=/run/tpm2
    cat > /etc/systemd/system/tpm2.service <<END
[Service]
ExecStart=swtpm socket --tpm2 --tpmstate dir=/var/lib/tpm2 --flags startup-clear \
    --server type=unixio,path=$tpm --ctrl type=unixio,path=$tpm.ctrl
Restart=always
END
    printf '[Manager]\nManagerEnvironment=SYSTEMD_TPM2_DEVICE=swtpm:path=%s\n' $tpm \
        > /etc/systemd/system.conf.d/tpm2.conf
    systemctl daemon-reexec
    systemctl start tpm2
    new_key
    lines credential-renew | sed 's/encrypt --name/encrypt --with-key=tpm2 --name/' > lines.sh
    SYSTEMD_TPM2_DEVICE=swtpm:path=$tpm sh -eu lines.sh || fail "no credential with the TPM2"
    signs_at_rest "a TPM2"
    # Another TPM2 cannot decrypt it.
    systemctl stop tpm2
    mv /var/lib/tpm2 tpm2
    mkdir /var/lib/tpm2
    systemctl start tpm2
    ! systemctl restart lockstep-keyd.service 2> /dev/null || fail "another TPM2 decrypts the key"
    systemctl show --property ExecMainStatus lockstep-keyd.service | grep -q 243 ||
        fail "the credential is not the reason"
    systemctl stop tpm2
    rm -r /var/lib/tpm2
    mv tpm2 /var/lib/tpm2
    systemctl start tpm2
    systemctl restart lockstep-keyd.service
    handshake $kept www.crt
else
    echo "no swtpm: no key is bound to a TPM2"
fi

# A token, which OpenSSL reaches by a provider of its own. SoftHSM ends in a segmentation fault if
# that provider has it clean up.
module=/usr/lib/softhsm/libsofthsm2.so
if [ -e $module ] && [ -e /usr/lib/*/ossl-modules/pkcs11.so ]; then
    softhsm2-util --init-token --free --label here --pin 1234 --so-pin 5678 > /dev/null
    pkcs11-tool --module $module --token-label here --login --pin 1234 --keypairgen \
        --key-type rsa:2048 --label wrap --id 01 > /dev/null 2>&1 || fail "no key in the token"
    (umask 077 && echo 1234 > /etc/lockstep/token.pin)
    cat > /etc/lockstep/token.cnf <<END
openssl_conf = openssl
[openssl]
providers = providers
[providers]
default = own
pkcs11 = token
[own]
activate = 1
[token]
activate = 1
pkcs11-module-path = $module
pkcs11-module-quirks = no-deinit
pkcs11-module-token-pin = file:/etc/lockstep/token.pin
END
    OPENSSL_CONF=/etc/lockstep/token.cnf openssl req -x509 -new -subj /CN=wrap \
        -key "pkcs11:token=here;object=wrap;type=private" -out /etc/lockstep/wrap.crt ||
        fail "no certificate of the token's key"
    new_key
    # The section of the previous key has no credential then, and is left out.
    follow token
    lockstep keyd wait
    systemctl reload haproxy
    signs_at_rest "a token"
else
    echo "no pkcs11-provider: no token decrypts a key"
fi
rm -r /etc/systemd/system/lockstep-keyd.service.d
# The units of the token name files in /etc/lockstep, which would stay for them.
systemctl stop lockstep-token.socket 2> /dev/null || true
rm -f /etc/systemd/system/lockstep-token* /etc/lockstep/token.* /etc/lockstep/www.cms \
    /etc/lockstep/wrap.crt
cp haproxy.cfg /etc/haproxy/haproxy.cfg
cp keyd.conf /etc/lockstep/keyd.conf
systemctl daemon-reload
systemctl restart lockstep-keyd.service
systemctl restart haproxy
handshake

lockstep uninstall --server haproxy
systemctl daemon-reload
systemctl restart haproxy
handshake
grep -q 'PRIVATE KEY' "/proc/$(main_of haproxy)/root/etc/haproxy/site.pem" || fail "no key is shown"
! grep -q lockstep.so "/proc/$(pgrep -n haproxy)/maps" || fail "the worker still loads the module"
systemctl stop lockstep-keyd.socket lockstep-keyd.service
[ "$(systemctl is-enabled lockstep-keyd.socket)" = disabled ] || fail "the daemon is still enabled"
echo "check-booted.sh: done"
