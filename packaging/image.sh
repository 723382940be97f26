#!/bin/sh
# Makes an image of a server with the module, as one file in OCI's format, without a daemon. The
# packages are Debian's, with its fixes of that day, and, from a signed tree of repositories, ours.
# Times in it are SOURCE_DATE_EPOCH.
#
# usage: image.sh haproxy|nginx TREE FILE
set -eu
server=$1
tree=$(realpath "$2")
file=$(realpath "$3")
suite=trixie
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT

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
        # and with a root that is read-only.
        own='sed -i "/^user /d; s,^pid .*,pid /dev/shm/nginx.pid;,
                s,^\s*error_log .*,error_log stderr;,;
                s,^\s*access_log .*,access_log /dev/stdout;," /etc/nginx/nginx.conf
            rm /etc/nginx/sites-enabled/default
            cd /var/lib/nginx
            mkdir -p body proxy fastcgi scgi uwsgi
            chown -R www-data: .'
        user=www-data stop=SIGQUIT
        set -- nginx -e stderr -g 'daemon off;'
        ;;
    *)
        echo "image.sh: no image of $server" >&2
        exit 1
        ;;
esac

# It reads each list and package by its signature, as `apt` does where somebody installs. There is
# no apt in the result: another image replaces it. `lockstep doctor` asks the openssl command.
sed "s,^URIs:.*,URIs: copy:$tree/apt," "$tree/lockstep.sources" > "$place/lockstep.sources"
mmdebstrap --variant=essential --include="$server,lockstep,openssl" \
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
    --customize-hook="rm \"\$1/etc/apt/sources.list.d/lockstep.sources\"" \
    --skip=output/dev $suite "$place/layer.tar"

version() {
    awk -v package="$1" '$1 == "Package:" { own = $2 == package }
        own && $1 == "Version:" { print $2 }' "$place/status" | sed 's/^.*://; s/-[^-]*$//'
}
lockstep=$(version lockstep)
layout=$place/layout
image=$layout:lockstep-$server:$lockstep
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
    --config.user "$(awk -F : -v user=$user '$1 == user { print $3 ":" $4 }' "$place/passwd")" \
    --config.env PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    --config.env OPENSSL_CONF=/etc/lockstep/openssl.cnf \
    --config.env TMPDIR=/dev/shm \
    --config.label $label.title="lockstep-$server" \
    --config.label $label.description="$server $(version "$server") with Lockstep, on $suite" \
    --config.label $label.version="$lockstep" \
    --config.label $label.created="$date"
umoci gc --layout "$layout"
tar --sort=name --owner=0 --group=0 --numeric-owner --mode=go=rX,u+w --mtime="$date" \
    --directory "$layout" --create --file "$file" .
