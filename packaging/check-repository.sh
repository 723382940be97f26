#!/bin/sh
# Runs in a bare Debian, with trees of repositories and the manual's page beside it: installs by the
# lines of the manual, upgrades, and removes all of it. A tree that somebody without the key has
# changed must be refused, each time for the reason that is expected. `cargo xtask nightly packages`
# starts it in chroots.
#
# usage: check-repository.sh apt|dnf
#   dnf is Debian's, so a package with the names of libraries stands for the distribution
set -eu
kind=$1
cd "$(dirname "$0")"
place=$PWD
offered=$place/lockstep

fail() {
    echo "check-repository.sh: $*" >&2
    exit 1
}

# All that a package may change. apt and dnf keep lists and records of their own.
files() {
    find / \( -path /proc -o -path /dev -o -path /run -o -path /tmp -o -path /var/log \
        -o -path /var/cache -o -path /var/lib/dpkg -o -path /var/lib/apt \
        -o -path /var/lib/dnf -o -path /root/.rpmdb -o -path "$place" \) -prune -o -print | sort
    getent passwd
    getent group
}

# A line of the manual, by its block and number, or the whole block.
line() {
    awk -v start="^ *\`\`\`sh $1\$" '/^ *```/ { on = $0 ~ start; next }
        on { printf sub(/\\$/, "") ? "%s" : "%s\n", $0 }' installation.md |
        sed -n "${2:-p}${2:+p}" > line.sh
    [ -s line.sh ] || fail "installation.md has no line ${2:-} for $1"
    sh -eu line.sh
}

offer() {
    rm -rf "$offered"
    cp -r "$1" "$offered"
}

# What a tool has seen of other trees.
forget() {
    rm -rf /var/lib/apt/lists/* /var/cache/apt/archives/lockstep* /var/cache/dnf
}

# A tree is refused by a tool that has seen no other one.
refused() {
    forget
    ! line "$kind" 2 > refused.log 2>&1 || fail "$1 was taken: $(cat refused.log)"
    [ -z "$(version)" ] || fail "$1 was installed"
    grep -Eq "$2" refused.log || fail "$1 was refused for another reason: $(cat refused.log)"
    echo "refused: $1"
}

# Replaces the first byte of a file's middle by another one, of which nothing can be told by size.
spoil() {
    middle=$(($(stat -c %s "$1") / 2))
    byte=$(od -An -tu1 -j "$middle" -N 1 "$1")
    printf "\\$(printf %o $((byte ^ 1)))" | dd of="$1" bs=1 seek="$middle" conv=notrunc status=none
}

sum() {
    sha256sum "$1" | cut -d ' ' -f 1
}

case $kind in
    apt)
        # As if the administrator said yes.
        echo 'APT::Get::Assume-Yes "true";' > /etc/apt/apt.conf.d/yes
        # The release's own packages are there.
        : > /etc/apt/sources.list
        version() { dpkg-query --show --showformat '${Version}' lockstep 2> /dev/null || true; }
        upgrade() { apt-get update && apt-get upgrade; }
        again() { apt-get update --error-on=any && apt-get install --reinstall lockstep; }
        whole() { ! dpkg --verify lockstep | grep .; }
        package() { echo "$offered"/apt/pool/*-2_amd64.deb; }
        suite=$offered/apt/dists/stable
        list=$suite/main/binary-amd64/Packages
        ;;
    dnf)
        mkdir -p /etc/dnf /etc/pki/rpm-gpg /etc/yum.repos.d /usr/lib64/ossl-modules \
            /usr/share/licenses /usr/share/zsh/site-functions /usr/share/fish/vendor_completions.d
        printf '[main]\nassumeyes=1\n' > /etc/dnf/dnf.conf
        # A plugin of newer versions changes mounts, which takes more than a chroot.
        echo '%__transaction_unshare %{nil}' > /root/.rpmmacros
        force=--force-debian
        rpm $force --version > /dev/null 2>&1 || force=
        rpm() { command rpm $force "$@"; }
        {
            printf 'Name: stand-in\nVersion: 1\nRelease: 1\nSummary: A distribution\n'
            printf 'License: none\nBuildArch: noarch\nAutoReqProv: no\n'
            printf 'Provides: /bin/sh\nProvides: shadow-utils\nProvides: libgcc_s.so.1()(64bit)\n'
            printf 'Provides: libc.so.6(GLIBC_2.34)(64bit)\n'
            printf 'Provides: libcrypto.so.3(OPENSSL_3.0.0)(64bit)\n%%description\n%%files\n'
        } > /tmp/stand-in.spec
        rpmbuild --quiet --define '_topdir /tmp/rpmbuild' -bb /tmp/stand-in.spec
        rpm --install --nodeps --noplugins /tmp/rpmbuild/RPMS/noarch/stand-in-*.rpm
        version() {
            rpm --query --queryformat '%{VERSION}-%{RELEASE}' lockstep | grep -v ' ' || true
        }
        # Otherwise it takes the list of two days before for a new one.
        upgrade() { dnf upgrade --refresh; }
        again() { dnf reinstall --refresh lockstep; }
        whole() { rpm --verify --nodeps lockstep; }
        package() { echo "$offered"/dnf/*-2.x86_64.rpm; }
        list=$offered/dnf/repodata/repomd.xml
        ;;
esac

! grep -rl 'PRIVATE KEY' --include='*' --exclude='*.deb' --exclude='*.rpm' --exclude='*.gz' \
    first later || fail "a private key is in a tree"
files > /tmp/before
offer later
line "$kind" 1
GNUPGHOME=/tmp line "$kind-key" | grep -qF "$(grep -xE '[0-9A-F]{40}' installation.md)" ||
    fail "the manual has another key"

offer later
spoil "$(package)"
refused "a package that was changed" 'Hash Sum mismatch|unexpected size|checksum|digest'

# The list of packages has the sum of the changed one, and so on up to the signature.
offer later
before=$(sum "$(package)")
spoil "$(package)"
case $kind in
    apt)
        for one in "$list" "$list.gz"; do
            echo "$one $(sum "$one") $(stat -c %s "$one")"
        done > sums
        sed -i "s/$before/$(sum "$(package)")/" "$list"
        # Weaker sums than this one go.
        sed -i '/^SHA512:/d; /^SHA1:/d; /^MD5sum:/d' "$list"
        gzip -9nkf "$list"
        refused "a list that was changed" 'Hash Sum mismatch|unexpected size'
        while read -r one old size; do
            sed -i "s/ $old *$size / $(sum "$one") $(stat -c %s "$one") /" "$suite/InRelease"
        done < sums
        refused "a list that was changed, with its sums" 'BADSIG|is not signed|[Ii]nvalid'

        sed '1,/^$/d; /^-----BEGIN PGP SIGNATURE/,$d' "$suite/InRelease" > "$suite/Release"
        rm "$suite/InRelease"
        refused "a tree without a signature" 'is not signed'
        offer stranger
        refused "a tree that a stranger has signed" 'NO_PUBKEY|is not signed'
        ;;
    dnf)
        for one in "$offered"/dnf/repodata/*primary.xml.gz; do :; done
        old=$(sum "$one")
        gunzip "$one"
        sed -i "s/$before/$(sum "$(package)")/" "${one%.gz}"
        gzip -n "${one%.gz}"
        refused "a list that was changed" '[Cc]hecksum'
        sed -i "s,>$old<,>$(sum "$one")<," "$list"
        refused "a list that was changed, with its sums" '[Bb]ad (GPG|PGP) signature|verif'
        rm "$list.asc"
        refused "a tree without a signature" 'repomd.xml.asc|GPG'
        offer stranger
        refused "a tree that a stranger has signed" '[Bb]ad (GPG|PGP) signature|verif|GPG'
        # A signed list is no help to a package that a stranger has signed.
        sed -i s/repo_gpgcheck=1/repo_gpgcheck=0/ /etc/yum.repos.d/lockstep.repo
        refused "a package that a stranger has signed" 'GPG|public key|signature'
        sed -i s/repo_gpgcheck=0/repo_gpgcheck=1/ /etc/yum.repos.d/lockstep.repo
        ;;
esac

offer first
forget
line "$kind" 2
case $(version) in *-1) ;; *) fail "version $(version) was installed" ;; esac
whole || fail "a file of the package is missing or changed"
lockstep --version

# An upgrade by a stranger, and one by the key.
offer stranger
upgrade > upgrade.log 2>&1 || true
grep -Eiq 'NO_PUBKEY|signature' upgrade.log || fail "no word of a stranger: $(cat upgrade.log)"
case $(version) in *-1) ;; *) fail "a stranger's version $(version) was installed" ;; esac
echo "refused: an upgrade by a stranger"
offer later
upgrade
case $(version) in *-2) ;; *) fail "no upgrade: $(version)" ;; esac
whole || fail "a file of the package is missing or changed"
echo "upgraded to $(version)"

# Another key of the release's own: refused as a stranger's, until the first line has brought it.
offer stranger
! again > again.log 2>&1 || fail "another key was taken"
grep -Eiq 'NO_PUBKEY|signature' again.log || fail "no word of another key: $(cat again.log)"
line "$kind" 1
again
whole || fail "a file of the package is missing or changed"
echo "taken: another key, after its line"

line "$kind-remove"
files > /tmp/after
diff /tmp/before /tmp/after || fail "removing the package left files, or took others"
echo "removed"
