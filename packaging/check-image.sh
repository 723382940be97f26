#!/bin/sh
# Runs an image of image.sh by runc, as careful people run theirs: by its own user, without
# privileges, with a root that is read-only and little memory to lock. Its configuration and its key
# come from outside. `cargo xtask release` and `cargo xtask nightly packages` start it.
#
# usage: check-image.sh haproxy|nginx FILE
set -eu
server=$1
file=$(realpath "$2")
port=28446
# An answer that is longer than all buffers on its way.
long=20000000
place=$(mktemp -d)
name=lockstep-check-$$
cd "$place"

fail() {
    echo "check-image.sh: $*" >&2
    cat log >&2
    exit 1
}

end() {
    runc delete --force $name 2> /dev/null || true
    rm -rf "$place"
}
trap end EXIT
trap 'exit 130' INT TERM

# The file of the image that another one names in this place.
blob() {
    echo "layout/blobs/sha256/$(jq --raw-output "$1" "$2" | sed 's/^sha256://')"
}

mkdir layout site
: > log
tar --extract --file "$file" --directory layout
image=layout:$(jq --raw-output '.manifests[0].annotations["org.opencontainers.image.ref.name"]' \
    layout/index.json)
config=$(blob .config.digest "$(blob '.manifests[0].digest' layout/index.json)")
umoci unpack --image "$image" bundle > log 2>&1
user=$(jq '.process.user.uid' bundle/config.json)
[ "$user" != 0 ] || fail "the image is root's"
for file_of in hostname resolv.conf apt/sources.list; do
    [ ! -e "bundle/rootfs/etc/$file_of" ] || fail "the image has the $file_of of who made it"
done
find bundle/rootfs -xdev -type f -perm /6000 > raised
[ ! -s raised ] || fail "programs take the rights of their owner: $(cat raised)"
[ -s bundle/rootfs/etc/ssl/certs/ca-certificates.crt ] || fail "the image knows no authority"

case $server in
    haproxy)
        # Debian's other files in the directory stay in sight.
        to=/etc/haproxy/keys
        count=rsa2048 kind=rsa:2048
        cat > site/haproxy.cfg <<END
defaults
    mode http
    timeout client 10s
    timeout connect 5s
    timeout server 10s
    errorfile 503 /etc/haproxy/errors/503.http
frontend site
    bind 127.0.0.1:$port ssl crt $to/site.pem
    http-request return status 200 content-type text/plain string hello
END
        ;;
    nginx)
        to=/etc/nginx/conf.d
        count=p256-sign kind='ec -pkeyopt ec_paramgen_curve:P-256'
        cat > site/site.conf <<END
server {
    listen 127.0.0.1:$port ssl;
    ssl_certificate $to/site.pem;
    ssl_certificate_key $to/site.pem;
    location / { return 200 hello; }
    location ~ /(long|body) { proxy_pass http://127.0.0.1:$((port + 1)); }
}
server {
    listen 127.0.0.1:$((port + 1));
    location /long { root $to; }
    location /body { return 204; }
}
END
        ;;
esac
truncate --size $long site/long
# shellcheck disable=SC2086
openssl req -x509 -newkey $kind -nodes -days 30 -subj /CN=localhost -keyout key.pem -out site.crt \
    2> /dev/null
cat key.pem site.crt > site/site.pem
chown "$user" site/site.pem
chmod 400 site/site.pem

jq --arg from "$place/site" --arg to "$to" '.process.terminal = false
    | .process.noNewPrivileges = true
    | .process.capabilities = {}
    | .process.rlimits = ([["MEMLOCK", 65536], ["NOFILE", 1024]]
        | map({type: "RLIMIT_\(.[0])", hard: .[1], soft: .[1]}))
    | .root.readonly = true
    | .linux.namespaces |= map(select(.type != "network"))
    | .mounts += ([[$to, ""], ["/etc/haproxy/haproxy.cfg", "/haproxy.cfg"]]
        | map(select(.[1] == "" or ($to | startswith("/etc/haproxy/")))
            | {destination: .[0], source: "\($from)\(.[1])", type: "bind",
                options: ["rbind", "ro"]}))' \
    bundle/config.json > config.json
mv config.json bundle/config.json
runc run --detach --bundle bundle $name > log 2>&1 < /dev/null || fail "it does not start"

tries=0
until openssl s_client -connect 127.0.0.1:$port -verify_return_error -CAfile site.crt \
    < /dev/null > client 2>&1; do
    tries=$((tries + 1))
    [ $tries -lt 50 ] || fail "no handshake: $(cat client)"
    sleep 0.1
done
for client in 1 2 3 4; do
    openssl s_time -connect 127.0.0.1:$port -new -time 2 > "client.$client" 2>&1 &
    echo $! > pid.$client
done
for client in 1 2 3 4; do
    wait "$(cat pid.$client)" || fail "a handshake failed: $(cat "client.$client")"
done
if [ "$server" = nginx ]; then
    # What is longer than the server's memory for it, and a client that takes its time.
    printf 'GET /long HTTP/1.0\r\n\r\n' > request
    read=$(openssl s_client -connect 127.0.0.1:$port -quiet < request 2> /dev/null |
        (sleep 2 && wc -c))
    [ "$read" -gt $long ] || fail "an answer ended after $read bytes: $(cat log)"
    (printf 'POST /body HTTP/1.0\r\nContent-Length: 500000\r\n\r\n' &&
        head -c 500000 /dev/zero) > request
    openssl s_client -connect 127.0.0.1:$port -quiet < request > answer 2> /dev/null || :
    head -1 answer | grep -q ' 204 ' || fail "a request was refused: $(head -1 answer)"
fi
shown() {
    runc exec $name lockstep stat --total "$1" || fail "no counters"
}
handshakes=$(cat client.[1-4] | awk '/ connections in .* real / { all += $1 } END { print all }')
on_lanes=$(shown "$count")
waits=$(shown async_submitted)
if grep -q avx512ifma /proc/cpuinfo; then
    told="$on_lanes of $handshakes on lanes, $waits paused: $(runc exec $name lockstep stat)"
    [ "$on_lanes" -gt $((handshakes / 20)) ] || fail "$told"
    # HAProxy's handshakes pause; nginx's cannot.
    [ "$server" = nginx ] || [ "$waits" -gt 0 ] || fail "$told"
    runc exec $name lockstep doctor > told || fail "doctor is not content: $(cat told)"
    lanes="$on_lanes of $handshakes handshakes on lanes"
else
    lanes="without AVX-512 IFMA, so whether lanes serve was not tried"
fi
# The signal that tools send it ends it.
stop=$(jq --exit-status --raw-output .config.StopSignal "$config")
runc kill $name "$stop"
tries=0
until [ "$(runc state $name | jq --raw-output .status)" = stopped ]; do
    tries=$((tries + 1))
    [ $tries -lt 50 ] || fail "it does not end"
    sleep 0.1
done
jq --exit-status --raw-output '.config.Labels["org.opencontainers.image.description"]' "$config"
echo "user $user, $(($(stat -c %s "$file") / 1000000)) MB, $lanes"
