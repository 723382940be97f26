#!/bin/sh
# Makes an image of a server with the module, as one file in OCI's format, without a daemon. The
# packages are Debian's, with its fixes of that day, and ours of VERSION (as 1.2.3-1), from a tree of
# repositories that KEY has signed: a directory, or where it is offered (https://...). KEY is a file
# with the public key. Times in the image are SOURCE_DATE_EPOCH, or now.
#
# usage: image.sh haproxy|nginx TREE KEY VERSION FILE
set -eu
: "${SOURCE_DATE_EPOCH:=$(date +%s)}"
export SOURCE_DATE_EPOCH
[ $# = 5 ] || {
    echo "usage: image.sh haproxy|nginx TREE KEY VERSION FILE" >&2
    exit 1
}
server=$1
lockstep=$4
file=$(realpath "$5")
suite=trixie
place=$(mktemp -d)
new=$file.new
trap 'rm -rf "$place" "$new"' EXIT
trap 'exit 130' INT TERM

# Without privileges mmdebstrap reads them by other numbers of users.
cp "$3" "$place/lockstep.asc"
case $2 in
    https://*) uri=$2/apt ;;
    *)
        cp -rL "$2/apt" "$place/apt"
        uri=copy:$place/apt
        ;;
esac
mkdir "$place/none"
chmod -R go+rX "$place"

case $server in
    haproxy)
        # A key's file is readable to a number, so the number stays.
        before='echo haproxy:x:500:500::/nonexistent:/usr/sbin/nologin >> /etc/passwd
            echo haproxy:x:500: >> /etc/group'
        # Debian's file has HAProxy start as root.
        own='rm /etc/haproxy/haproxy.cfg
            printf "global\n    ssl-mode-async\n" > /etc/lockstep/haproxy-global.cfg'
        user=haproxy stop=SIGUSR1
        set -- haproxy -W -db -f /etc/haproxy/haproxy.cfg -f /etc/lockstep/haproxy-global.cfg
        ;;
    nginx)
        before=:
        # Each place that nginx writes to by itself is there, or can be written without privileges
        # and with a root that is read-only. Where it cannot put a part of an answer into a file, it
        # ends the answer.
        own='sed -i "/^user /d; s,^pid .*,pid /dev/shm/nginx.pid;,
                s,^\s*error_log .*,error_log stderr;,;
                s,^\s*access_log .*,access_log /dev/stdout;,;
                s,^http {.*,&\n\tclient_body_temp_path /dev/shm/body;,;
                s,^http {.*,&\n\tproxy_max_temp_file_size 0;,;
                s,^http {.*,&\n\tfastcgi_max_temp_file_size 0;,;
                s,^http {.*,&\n\tuwsgi_max_temp_file_size 0;,;
                s,^http {.*,&\n\tscgi_max_temp_file_size 0;," /etc/nginx/nginx.conf
            rm /etc/nginx/sites-enabled/default
            cd /var/lib/nginx
            mkdir -p proxy fastcgi scgi uwsgi
            chown -R www-data: .'
        user=www-data stop=SIGQUIT
        set -- nginx -e stderr -g 'daemon off;'
        ;;
    *)
        echo "image.sh: no image of $server" >&2
        exit 1
        ;;
esac

# It reads each list and package by its signature, as `apt` does where somebody installs: Debian's
# by Debian's keys, whatever other keys this machine's own apt takes. There is no apt in the result:
# another image replaces it. `lockstep doctor` asks the openssl command, and servers that are clients
# of others look for authorities.
cat > "$place/lockstep.sources" <<END
Types: deb
URIs: $uri
Suites: stable
Components: main
Architectures: amd64
Signed-By: $place/lockstep.asc
END
mmdebstrap --variant=essential \
    --include="$server,lockstep=$lockstep,openssl,ca-certificates" \
    --keyring=/usr/share/keyrings/debian-archive-keyring.gpg --keyring="$place/none" \
    --dpkgopt='path-exclude=/usr/share/doc/*' \
    --dpkgopt='path-include=/usr/share/doc/*/copyright' \
    --dpkgopt='path-include=/usr/share/doc/lockstep/*' \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/info/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' \
    --setup-hook="copy-in $place/lockstep.sources /etc/apt/sources.list.d" \
    --essential-hook="chroot \"\$1\" sh -euc '$before'" \
    --customize-hook="copy-out /var/lib/dpkg/status /etc/passwd $place" \
    --customize-hook="chroot \"\$1\" sh -euc 'mkdir -p /etc/lockstep
        lockstep configuration > /etc/lockstep/openssl.cnf
        $own'" \
    --customize-hook="find \"\$1\" -xdev -type f -perm /6000 -exec chmod a-s {} +" \
    --customize-hook="cd \"\$1/etc\" && rm -rf apt/sources.list* resolv.conf hostname" \
    --skip=output/dev $suite "$place/layer.tar"

version() {
    awk -v package="$1" '$1 == "Package:" { own = $2 == package }
        own && $1 == "Version:" { print $2 }' "$place/status"
}
numbers=$(awk -F : -v user=$user '$1 == user { print $3 ":" $4 }' "$place/passwd")
of_server=$(version "$server")
if [ "$(version lockstep)" != "$lockstep" ] || [ -z "$of_server" ] || [ -z "$numbers" ]; then
    echo "image.sh: not as it has to be: lockstep $(version lockstep), $server $of_server," \
        "$user $numbers" >&2
    exit 1
fi
layout=$place/layout
image=$layout:lockstep-$server:${lockstep%-*}
label=org.opencontainers.image
date=$(date --utc --date="@$SOURCE_DATE_EPOCH" +%FT%TZ)
# Where the root is read-only, /dev/shm alone can be written to.
umoci init --layout "$layout"
umoci new --image "$image"
umoci raw add-layer --image "$image" --history.created "$date" "$place/layer.tar"
for word; do
    set -- "$@" --config.cmd "$word"
    shift
done
umoci config --image "$image" --created "$date" --history.created "$date" \
    --architecture amd64 --os linux "$@" --config.stopsignal $stop \
    --config.user "$numbers" \
    --config.env PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    --config.env OPENSSL_CONF=/etc/lockstep/openssl.cnf \
    --config.env TMPDIR=/dev/shm \
    --config.label $label.title="lockstep-$server" \
    --config.label $label.description="$server $of_server with Lockstep, on $suite" \
    --config.label $label.version="${lockstep%-*}" \
    --config.label $label.created="$date"
umoci gc --layout "$layout"
tar --sort=name --owner=0 --group=0 --numeric-owner --mode=go=rX,u+w --mtime="$date" \
    --directory "$layout" --create --file "$new" .
mv "$new" "$file"
