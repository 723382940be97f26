#!/bin/sh
# The work of the packages' scripts: `configured` after an installation, `removing` before the files
# of the package go, `removed` after that.
#
# Some things must stay as long as servers run that were started with them: a file that HAProxy's
# command names, references, the key daemon and its user. So `removing` leaves a copy of this script,
# and a unit that runs the copy, at each boot too. Once no server has these things any more, the copy
# removes them, the unit and itself. Another installation ends that.
set -eu
copy=/var/lib/lockstep-removal.sh
units=/etc/systemd/system
unit=lockstep-removal.service

systemd() {
    [ ! -d /run/systemd/system ] || systemctl --quiet "$@" 2> /dev/null || true
}

# Prints the unit of a process, if it is a service of the system.
unit_of() {
    sed -nE 's,^[0-9]+:(name=systemd)?:(/[^/]+\.slice)*/([A-Za-z0-9:_.@\\-]+\.service)(/.*)?$,\3,p' \
        "/proc/$1/cgroup" 2> /dev/null | grep -v '^user@' || true
}

daemon() {
    systemctl show --property MainPID --value lockstep-keyd.service 2> /dev/null || echo none
}

# Prints a file of the administrator's that names HAProxy's, which stays then.
naming() {
    grep -lRs -D skip /etc/lockstep/haproxy-global.cfg /etc/systemd /etc/default /etc/sysconfig \
        /etc/init.d /etc/environment /etc/haproxy | head -n 1
}

# Prints the servers that have something until their restart.
holders() {
    {
        # The brackets are in the arguments of grep itself, so these do not match.
        [ -n "$(naming)" ] ||
            grep -lszx '/etc/lockstep/haproxy-global[.]cfg' /proc/[0-9]*/cmdline || true
        grep -HosE '^([^ ]+ ){3}[^ ]*/lockstep-keyd/[^/ ]+/' /proc/[0-9]*/mountinfo
    } | sed -nE 's,^/proc/([0-9]+)/cmdline$,\1 haproxy,p
            s,^/proc/([0-9]+)/mountinfo:.*/([A-Za-z0-9_.@-]+)/$,\1 \2,p' | sort -u |
        while read -r process name; do
            # Other users can give their processes any argument, and in a namespace any mount.
            [ "$name" = haproxy ] || [ -d "/var/lib/lockstep-keyd/$name" ] || continue
            case $(unit_of "$process") in "$name"*) echo "$name" && continue ;; esac
            ! grep -qs '^Uid:[[:space:]]*0[[:space:]]' "/proc/$process/status" || echo "$name"
        done
    # Each client of the daemon has a ring.
    if grep -qs memfd:lockstep-ring "/proc/$(daemon)/maps"; then
        echo "servers with keys in the key daemon"
    fi
}

# Prints the sockets of the daemon. systemd has created them, and forgets them with its units.
sockets() {
    find /proc/1/fd "/proc/$(daemon)/fd" -lname 'socket:*' -printf '%l\n' 2> /dev/null |
        tr -cd '0-9\n' |
        awk 'NR == FNR { own[$1]; next } $7 in own && /\/lockstep-keyd\.sock$/ { print $8 }' \
            - /proc/net/unix | sort -u
}

# Removes everything that was left, and these sockets. Keys of the administrator in the daemon, and
# the references to them, stay.
clean() {
    for socket; do
        rm -f "$socket"
        rmdir "${socket%/*}" 2> /dev/null || true
    done
    systemd stop lockstep-keyd.socket lockstep-keyd.service
    if [ ! -e /etc/lockstep/keyd.conf ]; then
        rm -rf /var/lib/lockstep-keyd
        userdel lockstep-keyd 2> /dev/null || true
    fi
    # `lockstep uninstall` has taken the lines out of it.
    grep -qsv '^#' /etc/lockstep/haproxy-global.cfg || [ -n "$(naming)" ] ||
        rm -f /etc/lockstep/haproxy-global.cfg
    rmdir /etc/lockstep 2> /dev/null || true
    # The .rpm has files only, so rpm leaves their directories.
    for directory in lockstep doc/lockstep/servers doc/lockstep licenses/lockstep; do
        rmdir "/usr/share/$directory" 2> /dev/null || true
    done
    rm -f "$units/multi-user.target.wants/$unit" "$units/$unit"
    systemd daemon-reload
    # Counters, but for those of other users: these could keep a removal from its end.
    rm -rf /run/lockstep /run/lockstep-install.lock
    for directory in /dev/shm/lockstep-0 /tmp/lockstep-0; do
        [ ! -O "$directory" ] || rm -rf --one-file-system --preserve-root=all "$directory" || true
    done
    # Last, so that a script that was ended can be run again.
    rm -f "$copy"
}

case $1 in
    configured)
        systemd stop $unit
        rm -f $units/multi-user.target.wants/$unit $units/$unit $copy
        # The user of the key daemon.
        getent passwd lockstep-keyd > /dev/null || useradd --system --no-create-home \
            --home-dir /nonexistent --shell /usr/sbin/nologin lockstep-keyd
        systemd daemon-reload
        # It reads the counters of its own version only.
        systemd try-restart lockstep-exporter.service
        old=$(grep -lsE ' /usr/(bin/lockstep|lib.*/ossl-modules/lockstep\.so) \(deleted\)$' \
            /proc/[0-9]*/maps | while IFS=/ read -r _ _ process _; do unit_of "$process"; done)
        [ -z "$old" ] || echo "lockstep: services run the build before this one until you type, in any order:"
        # HAProxy starts its program anew when it reloads.
        [ -z "$old" ] || echo "$old" | sort -u |
            sed -E 's/^haproxy/reload &/; t end; s/^/restart /; : end; s/^/    systemctl /'
        ;;
    removing)
        # The files that `lockstep install` has written make servers load the module.
        status=0
        lockstep uninstall --package || status=$?
        if [ $status = 3 ]; then
            echo "lockstep: the package stays, because a server would not start without it; others do without it now" >&2
            exit 1
        fi
        systemd stop lockstep-exporter.socket lockstep-exporter.service
        cp "$0" $copy
        [ -d /run/systemd/system ] || exit 0
        cat > $units/$unit <<END
[Unit]
Description=Removes the rest of Lockstep once no server has it any more
ConditionPathExists=!/usr/bin/lockstep

[Service]
ExecStart=/bin/sh $copy wait $(sockets | tr '\n' ' ')
Restart=on-failure

[Install]
WantedBy=multi-user.target
END
        mkdir -p $units/multi-user.target.wants
        ln -sf ../$unit $units/multi-user.target.wants/
        ;;
    removed)
        # Where somebody had them start.
        rm -f $units/sockets.target.wants/lockstep-keyd.socket \
            $units/sockets.target.wants/lockstep-exporter.socket
        systemd daemon-reload
        holders=$(holders)
        if [ -z "$holders" ]; then
            # shellcheck disable=SC2046
            clean $(sockets)
        else
            systemd start $unit
            echo "lockstep: restart these; then $unit removes the rest, or without systemd: sh $copy wait"
            echo "$holders" | sort -u | sed 's/^/    /'
        fi
        ;;
    wait)
        shift
        pause=10
        # Another package, also an older one, may be there meanwhile.
        while [ ! -e /usr/bin/lockstep ] || exit 0; [ -n "$(holders)" ]; do
            sleep $pause
            # A poll reads a file of each process, maybe for months.
            pause=$((pause < 60 ? pause + 5 : 60))
        done
        clean "$@"
        ;;
esac
