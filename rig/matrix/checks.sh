#!/bin/sh
# What an OpenSSL does with a configuration: a line `name: result` for each thing that is tried.
# `cargo xtask matrix` runs it twice in the same root, without the module and with it, and compares.
#
# usage: checks.sh PART TRIED PLAIN DIRECTORY
#   PART       lists, commands, handshakes, references, async or server
#   TRIED      the configuration that is tried
#   PLAIN      a configuration without the module, for the other side
#   DIRECTORY  for files; must exist
#
# OPENSSL names the command, if not `openssl`. A result never depends on keys or on time. What a
# failed check printed is in DIRECTORY/failures.
set -u
export LC_ALL=C
openssl=${OPENSSL:-openssl}
part=$1 tried=$2 plain=$3
cd "$4" || exit 1
umask 077
unset OPENSSL_CONF

# The openssl command with the configuration that is tried, and with the plain one.
tried() { OPENSSL_CONF=$tried timeout 60 "$openssl" "$@"; }
plain() { OPENSSL_CONF=$plain timeout 60 "$openssl" "$@"; }

# Runs the rest of the arguments, and says under a name whether they passed.
check() {
    name=$1
    shift
    if "$@" > check.out 2> check.err < /dev/null; then
        echo "$name: ok"
    else
        echo "$name: failed"
        { echo "$name:" && cat check.err; } >> failures
    fi
}

refused() { ! "$@"; }

# Whether a command exits with this code: CODE COMMAND...
exits_with() {
    wanted=$1
    shift
    "$@"
    [ "$?" = "$wanted" ]
}

# --- lists

# What a list holds beside the module's own algorithms.
listed() {
    tried list "-$1" > listing 2> listing.err || return
    grep -v lockstep listing | sed 's/^[[:space:]]*//' | grep . | sort -u |
        sed "s/^/$1 has /; s/\$/: yes/"
}

# The same for a list on one line, each name with how often it occurs.
counted() {
    tr ':' '\n' | sed 's/^[[:space:]]*//' | grep . | sort | uniq -c |
        sed "s/^ *\([0-9]*\) \(.*\)\$/$1 has \2: \1/"
}

lists() {
    tried list -providers | sed -n 's/^  \([a-z0-9]*\)$/\1/p' | grep -v lockstep |
        sed 's/^/providers has /; s/$/: yes/'
    for list in public-key-algorithms public-key-methods key-managers signature-algorithms \
        key-exchange-algorithms kem-algorithms asymcipher-algorithms kdf-algorithms \
        digest-algorithms mac-algorithms cipher-algorithms encoders decoders store-loaders; do
        listed "$list"
    done
    for list in tls-groups all-tls-groups tls-signature-algorithms; do
        tried list "-$list" > listing 2> listing.err || continue
        counted "$list" < listing
        echo "$list in order: $(tr '\n' ' ' < listing)"
    done
    # What a client offers, as a server sees it.
    new_key p256 EC -pkeyopt ec_paramgen_curve:P-256 > key.out 2>&1
    certificate p256
    serve plain p256 -www
    for version in tls1_2 tls1_3; do
        printf 'GET / HTTP/1.0\r\n\r\n' |
            tried s_client -connect "127.0.0.1:$port" -$version -ign_eof > client.out 2>&1
        for names in 'Supported groups' 'Shared groups' 'Signature Algorithms' \
            'Shared Signature Algorithms'; do
            sed -n "s/^$names: //p" client.out | head -n 1 > listing
            counted "$version, $names" < listing
            echo "$version, $names in order: $(cat listing)"
        done
    done
    unserve
}

# --- operations of the command

# Makes a key pair with the configuration that is tried: NAME ALGORITHM OPTION...
new_key() {
    key=$1 algorithm=$2
    shift 2
    tried genpkey -algorithm "$algorithm" "$@" -out "$key.key" &&
        plain pkey -in "$key.key" -noout -check &&
        plain pkey -in "$key.key" -pubout -out "$key.pub"
}

# Reads a key and writes it in each form that OpenSSL alone writes, the same as it does.
written() {
    for form in 'pkey -text' 'pkey -text_pub -noout' 'pkey -outform DER' 'pkey -pubout' \
        'pkey -traditional'; do
        # shellcheck disable=SC2086
        plain $form -in "$1.key" > plain.form || continue
        # shellcheck disable=SC2086
        tried $form -in "$1.key" > tried.form && cmp tried.form plain.form || return 1
    done
    tried pkey -aes-128-cbc -passout pass:word -in "$1.key" -out sealed.key &&
        plain pkey -passin pass:word -in sealed.key -out plain.form &&
        tried pkey -in "$1.key" -out tried.form && cmp tried.form plain.form
}

# Signs with each side and verifies with the other; neither takes a signature of something else:
# KEY OPTION...
signed() {
    key=$1
    shift
    tried pkeyutl -sign -rawin -in data -inkey "$key.key" "$@" -out tried.sig &&
        plain pkeyutl -verify -rawin -in data -pubin -inkey "$key.pub" "$@" -sigfile tried.sig &&
        plain pkeyutl -sign -rawin -in data -inkey "$key.key" "$@" -out plain.sig &&
        tried pkeyutl -verify -rawin -in data -pubin -inkey "$key.pub" "$@" -sigfile plain.sig &&
        tried pkeyutl -verify -rawin -in data -inkey "$key.key" "$@" -sigfile plain.sig &&
        refused tried pkeyutl -verify -rawin -in other -pubin -inkey "$key.pub" "$@" \
            -sigfile plain.sig
}

# The same where one message has one signature.
signed_alike() {
    signed "$@" && cmp tried.sig plain.sig
}

# The same by `dgst`: KEY DIGEST OPTION...
digested() {
    key=$1 digest=$2
    shift 2
    tried dgst "-$digest" -sign "$key.key" "$@" -out tried.sig data &&
        plain dgst "-$digest" -verify "$key.pub" "$@" -signature tried.sig data &&
        plain dgst "-$digest" -sign "$key.key" "$@" -out plain.sig data &&
        tried dgst "-$digest" -verify "$key.pub" "$@" -signature plain.sig data &&
        refused tried dgst "-$digest" -verify "$key.pub" "$@" -signature plain.sig other
}

# An operation on bytes without a digest: KEY OPTION...
bare() {
    key=$1
    shift
    tried pkeyutl -sign -in digest -inkey "$key.key" "$@" -out tried.sig &&
        plain pkeyutl -verify -in digest -pubin -inkey "$key.pub" "$@" -sigfile tried.sig &&
        plain pkeyutl -sign -in digest -inkey "$key.key" "$@" -out plain.sig &&
        tried pkeyutl -verify -in digest -pubin -inkey "$key.pub" "$@" -sigfile plain.sig
}

# Encrypts with each side and decrypts with the other: KEY OPTION...
decrypted() {
    key=$1
    shift
    plain pkeyutl -encrypt -in digest -pubin -inkey "$key.pub" "$@" -out plain.enc &&
        tried pkeyutl -decrypt -in plain.enc -inkey "$key.key" "$@" -out tried.dec &&
        cmp digest tried.dec &&
        tried pkeyutl -encrypt -in digest -pubin -inkey "$key.pub" "$@" -out tried.enc &&
        plain pkeyutl -decrypt -in tried.enc -inkey "$key.key" "$@" -out plain.dec &&
        cmp digest plain.dec
}

# Both sides agree on the same secret: KEY PEER OPTION...
agreed() {
    key=$1 peer=$2
    shift 2
    tried pkeyutl -derive -inkey "$key.key" -peerkey "$peer.pub" "$@" -out tried.secret &&
        plain pkeyutl -derive -inkey "$peer.key" -peerkey "$key.pub" "$@" -out plain.secret &&
        cmp tried.secret plain.secret &&
        refused cmp tried.secret /dev/null
}

# Secrets become symmetric keys of OpenSSL's own (OpenSSL 3.6), which encipher: KEY
keyed() {
    OPENSSL_CONF=$tried timeout 60 "${0%/*}/secret_keys" "$1.key"
}

# A secret of each side is found by the other. Of a ciphertext that is damaged both make the same
# secret, and another one.
encapsulated() {
    key=$1
    tried pkeyutl -encap -pubin -inkey "$key.pub" -out tried.enc -secret tried.secret &&
        plain pkeyutl -decap -inkey "$key.key" -in tried.enc -secret plain.secret &&
        cmp tried.secret plain.secret &&
        plain pkeyutl -encap -pubin -inkey "$key.pub" -out plain.enc -secret plain.secret &&
        tried pkeyutl -decap -inkey "$key.key" -in plain.enc -secret tried.secret &&
        cmp tried.secret plain.secret &&
        printf '\377\377\377\377' |
        dd of=plain.enc bs=1 seek=20 conv=notrunc 2> /dev/null &&
        tried pkeyutl -decap -inkey "$key.key" -in plain.enc -secret tried.secret &&
        refused cmp tried.secret plain.secret &&
        plain pkeyutl -decap -inkey "$key.key" -in plain.enc -secret plain.secret &&
        cmp tried.secret plain.secret &&
        head -c 100 plain.enc > short.enc &&
        refused tried pkeyutl -decap -inkey "$key.key" -in short.enc -secret tried.secret
}

# A certificate that its own key has signed.
certified() {
    tried req -x509 -new -key "$1.key" -subj /CN=localhost -days 30 -out "$1.crt" &&
        plain verify -CAfile "$1.crt" "$1.crt" &&
        tried verify -CAfile "$1.crt" "$1.crt" &&
        tried req -new -key "$1.key" -subj /CN=localhost -out "$1.csr" &&
        plain req -in "$1.csr" -verify -noout
}

# A message to the owner of a certificate, and one signed by them.
mailed() {
    plain cms -encrypt -in data -outform DER -out plain.cms "$1.crt" &&
        tried cms -decrypt -in plain.cms -inform DER -inkey "$1.key" -recip "$1.crt" \
            -binary -out tried.mail &&
        tried cms -encrypt -in data -outform DER -out tried.cms "$1.crt" &&
        plain cms -decrypt -in tried.cms -inform DER -inkey "$1.key" -recip "$1.crt" \
            -binary -out plain.mail &&
        cmp tried.mail plain.mail &&
        tried cms -sign -in data -signer "$1.crt" -inkey "$1.key" -nodetach -outform DER \
            -out signed.cms &&
        plain cms -verify -in signed.cms -inform DER -CAfile "$1.crt" -purpose any -out plain.mail
}

# A long message under AES-GCM. A damaged one is refused: BITS
enciphered() {
    plain cms -encrypt -in long -binary "-aes-$1-gcm" -outform DER -out plain.cms rsa2048.crt &&
        tried cms -decrypt -in plain.cms -inform DER -inkey rsa2048.key -recip rsa2048.crt \
            -binary -out tried.mail &&
        cmp long tried.mail &&
        tried cms -encrypt -in long -binary "-aes-$1-gcm" -outform DER -out tried.cms \
            rsa2048.crt &&
        plain cms -decrypt -in tried.cms -inform DER -inkey rsa2048.key -recip rsa2048.crt \
            -binary -out plain.mail &&
        cmp long plain.mail &&
        printf '\377\377\377\377' |
        dd of=plain.cms bs=1 seek=50000 conv=notrunc 2> /dev/null &&
        refused tried cms -decrypt -in plain.cms -inform DER -inkey rsa2048.key \
            -recip rsa2048.crt -binary -out tried.mail
}

# A message to a key that cannot sign, by a certificate of another one's. Not every OpenSSL can.
mailed_by_kem() {
    plain x509 -new -force_pubkey "$1.pub" -subj /CN=localhost -CA "$2.crt" -CAkey "$2.key" \
        -days 30 -out "$1.crt" &&
        plain cms -encrypt -in data -binary -aes128 -outform DER -out plain.cms "$1.crt" &&
        tried cms -decrypt -in plain.cms -inform DER -inkey "$1.key" -recip "$1.crt" \
            -binary -out tried.mail &&
        cmp data tried.mail &&
        tried cms -encrypt -in data -binary -aes128 -outform DER -out tried.cms "$1.crt" &&
        plain cms -decrypt -in tried.cms -inform DER -inkey "$1.key" -recip "$1.crt" \
            -binary -out plain.mail &&
        cmp data plain.mail
}

bundled() {
    tried pkcs12 -export -in "$1.crt" -inkey "$1.key" -passout pass:word -out "$1.p12" &&
        plain pkcs12 -in "$1.p12" -passin pass:word -nodes -out plain.form &&
        tried pkcs12 -in "$1.p12" -passin pass:word -nodes -out tried.form &&
        cmp plain.form tried.form
}

# A key that is damaged is refused.
damaged() {
    tried pkey -in "$1.key" -outform DER -out damaged.der &&
        printf '\377\377\377\377' |
        dd of=damaged.der bs=1 seek=20 conv=notrunc 2> /dev/null &&
        refused tried pkey -in damaged.der -inform DER -check -noout
}

commands() {
    printf 'a message' > data
    printf 'another message' > other
    plain dgst -sha256 -binary -out digest data
    for bits in 1024 2048 3072 4096; do
        check "genpkey RSA-$bits" new_key "rsa$bits" RSA -pkeyopt "rsa_keygen_bits:$bits"
    done
    check 'genpkey RSA-2048 with exponent 3' new_key rsa3 RSA -pkeyopt rsa_keygen_pubexp:3
    check 'genpkey RSA-2048 with three primes' new_key rsamp RSA -pkeyopt rsa_keygen_primes:3
    check 'genpkey RSA-PSS' new_key rsapss RSA-PSS -pkeyopt rsa_keygen_bits:2048
    check 'genpkey RSA-PSS with SHA-384' new_key rsapss384 RSA-PSS \
        -pkeyopt rsa_pss_keygen_md:sha384 -pkeyopt rsa_pss_keygen_mgf1_md:sha384 \
        -pkeyopt rsa_pss_keygen_saltlen:48
    for curve in P-224 P-256 P-384 P-521 secp256k1 brainpoolP256r1 brainpoolP384r1 sect283k1 SM2
    do
        check "genpkey EC $curve" new_key "ec$curve" EC -pkeyopt "ec_paramgen_curve:$curve"
        check "genpkey EC $curve, again" new_key "peer$curve" EC \
            -pkeyopt "ec_paramgen_curve:$curve"
    done
    check 'genpkey EC P-256 with explicit parameters' new_key explicit EC \
        -pkeyopt ec_paramgen_curve:P-256 -pkeyopt ec_param_enc:explicit
    check 'genpkey SM2' new_key sm2 SM2
    for kind in X25519 X448 ED25519 ED448; do
        check "genpkey $kind" new_key "$kind" "$kind"
        check "genpkey $kind, again" new_key "peer$kind" "$kind"
    done
    check 'genpkey DH' new_key dh DH -pkeyopt group:ffdhe2048
    check 'genpkey DH, again' new_key peerdh DH -pkeyopt group:ffdhe2048
    for kind in ML-DSA-44 ML-DSA-65 ML-DSA-87 ML-KEM-512 ML-KEM-768 ML-KEM-1024 \
        SLH-DSA-SHA2-128f; do
        check "genpkey $kind" new_key "$kind" "$kind"
    done
    for key in *.key; do
        # One that could not be written is empty.
        [ -s "$key" ] || continue
        check "${key%.key} in each form" written "${key%.key}"
    done
    for key in rsa2048 ecP-256 ML-DSA-44; do
        check "$key damaged" damaged "$key"
    done

    for digest in md5 sha1 sha224 sha256 sha384 sha512 sha512-256 sha3-256 sha3-512 ripemd160 \
        md5-sha1 sm3; do
        check "RSA-2048 $digest" signed_alike rsa2048 -digest "$digest"
        check "RSA-2048 PSS $digest" signed rsa2048 -digest "$digest" \
            -pkeyopt rsa_padding_mode:pss
        check "P-256 $digest" signed ecP-256 -digest "$digest"
        check "P-384 $digest" signed ecP-384 -digest "$digest"
        check "dgst RSA-2048 $digest" digested rsa2048 "$digest"
        check "dgst P-256 $digest" digested ecP-256 "$digest"
    done
    for key in rsa1024 rsa3072 rsa4096 rsa3 rsamp; do
        check "$key" signed_alike "$key" -digest sha256
        check "$key PSS" signed "$key" -digest sha256 -pkeyopt rsa_padding_mode:pss
    done
    for salt in 0 20 digest max; do
        check "RSA-2048 PSS, salt $salt" signed rsa2048 -digest sha256 \
            -pkeyopt rsa_padding_mode:pss -pkeyopt "rsa_pss_saltlen:$salt"
    done
    check 'RSA-2048 PSS, MGF1 SHA-1' signed rsa2048 -digest sha256 \
        -pkeyopt rsa_padding_mode:pss -pkeyopt rsa_mgf1_md:sha1
    check 'RSA-2048 X9.31' signed rsa2048 -digest sha256 -pkeyopt rsa_padding_mode:x931
    check 'RSA-PSS' signed rsapss -digest sha256
    check 'RSA-PSS with SHA-384' signed rsapss384 -digest sha384
    check 'RSA-PSS with SHA-384, SHA-256 refused' refused \
        tried pkeyutl -sign -rawin -in data -inkey rsapss384.key -digest sha256 -out tried.sig
    check 'RSA-2048 of a digest' bare rsa2048 -pkeyopt digest:sha256
    check 'RSA-2048 of bytes' bare rsa2048
    check 'RSA-2048 PSS of a digest' bare rsa2048 -pkeyopt digest:sha256 \
        -pkeyopt rsa_padding_mode:pss
    check 'P-256 of a digest' bare ecP-256
    check 'P-384 of a digest' bare ecP-384
    for key in ecP-224 ecP-521 ecsecp256k1 ecbrainpoolP256r1 ecbrainpoolP384r1 ecsect283k1 \
        explicit; do
        check "$key" signed "$key" -digest sha256
    done
    check 'SM2' signed sm2 -digest sm3 -pkeyopt distid:1234567812345678
    check 'SM2 by EC' signed ecSM2 -digest sm3
    check 'ED25519' signed_alike ED25519
    check 'ED448' signed_alike ED448
    lattices

    for key in rsa1024 rsa2048 rsa3072 rsa4096; do
        check "$key PKCS1" decrypted "$key"
        check "$key OAEP" decrypted "$key" -pkeyopt rsa_padding_mode:oaep
        check "$key OAEP SHA-256" decrypted "$key" -pkeyopt rsa_padding_mode:oaep \
            -pkeyopt rsa_oaep_md:sha256 -pkeyopt rsa_mgf1_md:sha1 \
            -pkeyopt rsa_oaep_label:6c6f636b
    done
    check 'SM2 decryption' decrypted sm2
    check 'RSA-2048 OAEP, damaged' refused \
        tried pkeyutl -decrypt -in tried.sig -inkey rsa2048.key -pkeyopt rsa_padding_mode:oaep

    for curve in P-224 P-256 P-384 P-521 secp256k1 brainpoolP256r1 sect283k1; do
        check "ECDH $curve" agreed "ec$curve" "peer$curve"
    done
    check 'ECDH P-256 with cofactor' agreed ecP-256 peerP-256 -pkeyopt ecdh_cofactor_mode:1
    check 'ECDH P-256 and P-384' refused tried pkeyutl -derive -inkey ecP-256.key \
        -peerkey ecP-384.pub -out tried.secret
    check 'X25519' agreed X25519 peerX25519
    check 'X448' agreed X448 peerX448
    check 'DH' agreed dh peerdh
    # It is compiled where there is a compiler.
    if [ -x "${0%/*}/secret_keys" ]; then
        for key in X25519 ecP-256; do
            check "both sides encipher with secrets of $key" keyed $key
        done
    fi
    for kind in ML-KEM-512 ML-KEM-768 ML-KEM-1024; do
        check "$kind" encapsulated "$kind"
    done

    for key in rsa2048 rsa4096 rsapss ecP-256 ecP-384 ecP-521 ED25519 ED448 ML-DSA-44 ML-DSA-65 \
        ML-DSA-87; do
        check "certificate $key" certified "$key"
    done
    for key in rsa2048 ecP-256 ecP-384; do
        check "cms $key" mailed "$key"
        check "pkcs12 $key" bundled "$key"
    done
    head -c 100000 /dev/urandom > long
    for bits in 128 192 256; do
        check "cms AES-$bits-GCM" enciphered $bits
    done
    check 'cms ML-KEM-768' mailed_by_kem ML-KEM-768 ecP-256
    check 'genrsa' tried genrsa -out genrsa.key 2048
    check 'ecparam -genkey' tried ecparam -name P-256 -genkey -noout -out ecparam.key
}

# A private key of ML-DSA is written as a seed, as what follows from it, or as both: KEY
kept_in_each_form() {
    for form in seed-only priv-only seed-priv bare-seed bare-priv; do
        plain pkey -in "$1.key" -provparam "ml-dsa.output_formats=$form" -out "$1-$form.key" &&
            tried pkey -in "$1.key" -provparam "ml-dsa.output_formats=$form" -out tried.form &&
            cmp tried.form "$1-$form.key" &&
            cp "$1.pub" "$1-$form.pub" &&
            signed_alike "$1-$form" -pkeyopt deterministic:1 || return 1
    done
}

# A private half that belongs to another public key is refused by both alike: KEY OTHER
mixed() {
    plain pkey -in "$1.key" -outform DER -provparam ml-dsa.output_formats=seed-priv -out mixed.der
    plain pkey -in "$2.key" -outform DER -provparam ml-dsa.output_formats=seed-only -out seed.der
    # The seed of another key before what follows from this key's.
    tail -c 32 seed.der |
        dd of=mixed.der bs=1 seek=$(($(wc -c < mixed.der) - $3)) conv=notrunc 2> /dev/null
    refused tried pkey -in mixed.der -inform DER -noout &&
        refused plain pkey -in mixed.der -inform DER -noout
}

# Signatures of ML-DSA with each parameter that a command can give.
lattices() {
    head -c 64 /dev/zero > mu
    plain genpkey -algorithm ML-DSA-44 -out other44.key > other.out 2>&1
    entropy=000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f
    for kind in ML-DSA-44 ML-DSA-65 ML-DSA-87; do
        check "$kind" signed "$kind"
        check "$kind deterministic" signed_alike "$kind" -pkeyopt deterministic:1
        check "$kind with a context" signed_alike "$kind" -pkeyopt deterministic:1 \
            -pkeyopt context-string:word
        check "$kind, raw" signed_alike "$kind" -pkeyopt deterministic:1 \
            -pkeyopt message-encoding:0
        check "$kind with entropy of a test" signed_alike "$kind" \
            -pkeyopt "hextest-entropy:$entropy"
        mv data data.kept && cp mu data
        check "$kind of a hash" signed_alike "$kind" -pkeyopt deterministic:1 -pkeyopt mu:1
        mv data.kept data
        check "$kind of a hash, which is too short" refused tried pkeyutl -sign -rawin -in data \
            -inkey "$kind.key" -pkeyopt mu:1 -out tried.sig
        check "$kind with entropy that is too short" refused tried pkeyutl -sign -rawin -in data \
            -inkey "$kind.key" -pkeyopt hextest-entropy:00 -out tried.sig
        check "$kind with another context" refused tried pkeyutl -verify -rawin -in data -pubin \
            -inkey "$kind.pub" -pkeyopt context-string:word -sigfile plain.sig
        check "$kind in each form of key" kept_in_each_form "$kind"
    done
    check 'ML-DSA-44, a key that is mixed' mixed ML-DSA-44 other44 2596
    # It is compiled where there is a compiler.
    if [ -x "${0%/*}/ml_dsa" ]; then
        for kind in ML-DSA-44 ML-DSA-65 ML-DSA-87; do
            check "$kind by EVP" by_evp "$kind"
        done
    fi
}

by_evp() { OPENSSL_CONF=$tried timeout 60 "${0%/*}/ml_dsa" "$1" 50 1; }

# --- handshakes

certificate() {
    plain req -x509 -new -key "$1.key" -subj /CN=localhost -days 30 -out "$1.crt" > req.out 2>&1
}

# Starts a server of a side with a certificate: SIDE KEY OPTION...
serve() {
    side=$1 key=$2
    shift 2
    : > server.out
    # `exec` would not find a function, so the configuration is set here.
    case $side in
        tried) configuration=$tried ;;
        *) configuration=$plain ;;
    esac
    OPENSSL_CONF=$configuration "$openssl" s_server -accept 127.0.0.1:0 -cert "$key.crt" \
        -key "$key.key" -CAfile "$key.crt" -verify 1 -verify_quiet "$@" \
        > server.out 2> server.err < /dev/null &
    server=$!
    port=
    tries=0
    while [ -z "$port" ] && [ "$tries" -lt 200 ]; do
        sleep 0.02
        port=$(sed -n 's/^ACCEPT 127.0.0.1:\([0-9]*\).*/\1/p' server.out | head -n 1)
        tries=$((tries + 1))
    done
}

# A certificate of a key by the authority, whose key is of ML-DSA: KEY NAME
certified() {
    plain req -new -key "$1.key" -subj /CN=localhost -addext subjectAltName=DNS:localhost \
        -out "$2.csr" > req.out 2>&1 &&
        plain x509 -req -in "$2.csr" -CA authority.crt -CAkey authority.key -days 30 \
            -copy_extensions copy -out "$2.crt" > req.out 2>&1
}

# Makes the authority, which only OpenSSL from 3.5 on can. No site has its name.
authority() {
    plain genpkey -algorithm ML-DSA-65 -out authority.key > req.out 2>&1 &&
        plain req -x509 -new -key authority.key -subj /CN=authority -days 30 -out authority.crt \
            > req.out 2>&1
}

# Handshakes of a client that is neither OpenSSL nor ours with a server that has a certificate of
# the authority. It refuses others, and signatures that are changed: NAME
over_rustls() {
    client="${0%/*}/rustls_client"
    check "rustls with $1" "$client" "$port" authority.crt
    check "rustls with $1, another authority" exits_with 4 "$client" "$port" "$1.crt"
    for what in chain handshake; do
        check "rustls with $1, $what spoilt" exits_with 3 "$client" "$port" authority.crt $what
    done
}

unserve() {
    kill "$server" 2> /dev/null
    wait "$server" 2> /dev/null || :
}

# A handshake of a client of a side, which sends a certificate of its own (or that of $identity),
# and what came of it: NAME SIDE KEY VERSION GROUP
handshake() {
    own=${identity:-$3}
    "$2" s_client -connect "127.0.0.1:$port" -CAfile "$3.crt" -verify_return_error \
        -cert "$own.crt" -key "$own.key" "-$4" -groups "$5" < /dev/null > client.out 2> client.err
    status=$?
    outcome=$(sed -n -e 's/^New, \(TLS.*\)/\1/p' -e 's/^\(Server\|Peer\) Temp Key: //p' \
        -e 's/^Negotiated TLS1.3 group: //p' -e 's/^Peer signature type: //p' \
        -e 's/^Peer signing digest: //p' -e 's/^Verification: //p' client.out | tr '\n' ';')
    if [ "$status" = 0 ] && [ -n "$outcome" ]; then
        echo "$1: $outcome"
    else
        echo "$1: failed"
        { echo "$1:" && cat client.err server.err; } >> failures
    fi
}

handshakes() {
    {
        new_key rsa RSA -pkeyopt rsa_keygen_bits:2048
        new_key rsapss RSA-PSS -pkeyopt rsa_keygen_bits:2048
        new_key p256 EC -pkeyopt ec_paramgen_curve:P-256
        new_key p384 EC -pkeyopt ec_paramgen_curve:P-384
        new_key ed25519 ED25519
        for set in 44 65 87; do
            new_key mldsa$set ML-DSA-$set
        done
    } > keys.out 2>&1
    for key in rsa rsapss p256 p384 ed25519 mldsa44 mldsa65 mldsa87; do
        case $key in
            # OpenSSL has them from 3.5 on.
            mldsa*)
                check "key of $key" test -s $key.key
                [ -s $key.key ] || continue
                ;;
        esac
        certificate "$key"
        for which in server client; do
            case $which in
                server) serve tried "$key" -www && other=plain ;;
                client) serve plain "$key" -www && other=tried ;;
            esac
            for version in tls1_2 tls1_3; do
                for group in X25519 P-256 P-384 X448 ffdhe2048 X25519MLKEM768 \
                    SecP256r1MLKEM768 SecP384r1MLKEM1024; do
                    groups=$group
                    case "$version $key $group" in
                        # ML-DSA is for TLS 1.3 only.
                        tls1_2*mldsa*) continue ;;
                        # The hybrid groups are for TLS 1.3 only.
                        tls1_2*MLKEM*) continue ;;
                        # In TLS 1.2 the curve of the certificate must be among the groups.
                        'tls1_2 p256 P-256' | 'tls1_2 p384 P-384') ;;
                        'tls1_2 p256 '*) groups=$group:P-256 ;;
                        'tls1_2 p384 '*) groups=$group:P-384 ;;
                    esac
                    handshake "$which with $key, $version, $group" "$other" "$key" $version "$groups"
                done
            done
            unserve
        done
    done
    if [ -s mldsa44.key ]; then
        authority
        for kind in mldsa44 mldsa65 mldsa87; do
            cp $kind.key site$kind.key && certified $kind site$kind
            serve tried site$kind -www
            over_rustls site$kind
            unserve
        done
    fi
    shares
    # OpenSSL before 3.5 has these groups by the module alone.
    serve tried p256 -www -groups X25519MLKEM768:SecP256r1MLKEM768:SecP384r1MLKEM1024
    for group in X25519MLKEM768 SecP256r1MLKEM768 SecP384r1MLKEM1024; do
        handshake "both sides with p256, tls1_3, $group" tried p256 tls1_3 $group
    done
    unserve
}

# Bytes that are written in hexadecimal digits.
bytes() {
    # Other shells know no hexadecimal digits here.
    # shellcheck disable=SC2016
    bash -c 'printf "$0"' "$(printf %s "$1" | tr -d ' ' | sed 's/../\\x&/g')"
}

zeros() { head -c "$1" /dev/zero; }

# A number in two bytes.
two() { bytes "$(printf %04x "$1")"; }

# The hello of a client of TLS 1.3 with one group, and the share for it in a file: GROUP FILE
hello() {
    length=$(wc -c < "$2")
    bytes 160301 && two $((80 + length)) && bytes 0100 && two $((76 + length))
    # Version, random number, no session, one cipher, no compression.
    bytes 0303 && zeros 32 && bytes '00 0002 1301 01 00' && two $((33 + length))
    # Versions, groups, signature algorithms, shares.
    bytes '002b 0003 02 0304' && bytes "000a 0004 0002 $1" && bytes '000d 0004 0002 0403'
    bytes 0033 && two $((6 + length)) && two $((4 + length)) && bytes "$1" && two "$length" &&
        cat "$2"
}

# What a server answers to a hello in a file, in a word.
answer() {
    # shellcheck disable=SC2016
    reply=$(timeout 20 bash -c 'exec 3<> /dev/tcp/127.0.0.1/$0 && cat "$1" >&3 &&
        head -c 7 <&3 | od -An -tx1 | tr -d " \n"' "$port" "$1" 2>&1)
    case $reply in
        160303*) echo 'a ServerHello' ;;
        1503030002*) echo "alert $((0x${reply#????????????}))" ;;
        *) echo "$reply" ;;
    esac
}

# What a server answers to a share: NAME GROUP FILE ANSWER. Where OpenSSL lacks the groups, it
# cannot be compared: then the answer must be one of those in the pattern.
share() {
    hello "$2" "$3" > hello
    answered=$(answer hello)
    if [ "$known" = yes ]; then
        echo "share for $1: $answered"
    elif printf '%s\n' "$answered" | grep -q -x -E "$4"; then
        echo "both sides know the share for $1: ok"
    else
        echo "both sides know the share for $1: failed"
        echo "share for $1: $answered" >> failures
    fi
}

# Shares for the hybrids, good and bad, of RFC 8446 and draft-ietf-tls-ecdhe-mlkem. The alerts must
# be OpenSSL's own. A point that is not on its curve is found when it is used; then libssl answers
# with alert 80 in some versions that lack the groups.
shares() {
    zeros 1184 > mlkem
    { bytes ffffff && zeros 1181; } > mlkem.large
    { bytes 09 && zeros 31; } > x25519
    zeros 32 > x25519.zero
    x=6b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c296
    y=4fe342e2fe1a7f9b8ee7eb4a7c0f9e162bce33576b315ececbb6406837bf51f5
    field=ffffffff00000001000000000000000000000000ffffffffffffffffffffffff
    bytes "04$x$y" > p256
    bytes "04$x${y%5}4" > p256.off
    bytes "04$field$y" > p256.large
    bytes "06$x$y" > p256.form
    { bytes "03$x" && zeros 32; } > p256.compressed
    zeros 65 > p256.infinity
    # What each group makes of a share that is good.
    cat mlkem x25519 > good.11ec
    cat p256 mlkem > good.11eb
    known=no
    if plain list -tls-groups 2> listing.err | grep -q SecP256r1MLKEM768; then
        known=yes
    fi
    illegal='alert 47' undecodable='alert 50' unusable='alert (47|80)'
    serve tried p256 -www -groups X25519MLKEM768:SecP256r1MLKEM768
    for group in 11ec 11eb; do
        share "$group, good" $group good.$group 'a ServerHello'
        whole=$(wc -c < good.$group)
        : > bad
        share "$group, empty" $group bad "$undecodable"
        { cat good.$group && zeros 1; } > bad
        share "$group, a byte long" $group bad "$illegal"
        for part in 32 1184 $((whole - 1)); do
            head -c "$part" good.$group > bad
            share "$group, $part of $whole bytes" $group bad "$illegal"
        done
    done
    cat mlkem.large x25519 > bad
    share '11ec, a coefficient too large' 11ec bad "$illegal"
    cat mlkem x25519.zero > bad
    share '11ec, X25519 of zero' 11ec bad "$unusable"
    cat p256 mlkem.large > bad
    share '11eb, a coefficient too large' 11eb bad "$illegal"
    for form in off large form compressed infinity; do
        cat p256.$form mlkem > bad
        share "11eb, P-256 $form" 11eb bad "$unusable"
    done
    unserve
}

# --- references to keys of the key daemon

# Puts references in the place of these keys, which only the daemon has then: KEY... Without the
# module the keys stay.
hold() {
    keyd=
    [ "$tried" = "$plain" ] && return
    lockstep=${0%/*}/lockstep
    mkdir held
    printf 'socket = %s\nuser = %s\n' "$PWD/keyd.sock" "$(id -u)" > keyd.conf
    for key in "$@"; do
        mv "$key.key" held
        printf '[key %s]\nfile = %s\nusers = %s\nuses = sign\n' "$key" "$PWD/held/$key.key" \
            "$(id -u)" >> keyd.conf
    done
    for key in "$@"; do
        "$lockstep" keyd --config keyd.conf export-reference "$key" --out "$key.key"
    done
    export LOCKSTEP_REFERENCES=yes LOCKSTEP_KEYD_SOCKET="$PWD/keyd.sock"
    "$lockstep" keyd --config keyd.conf > keyd.out 2>&1 &
    keyd=$!
    tries=0
    until "$lockstep" keyd --config keyd.conf keys || [ "$tries" -ge 200 ]; do
        sleep 0.05
        tries=$((tries + 1))
    done
}

unhold() {
    [ -z "$keyd" ] && return
    unset LOCKSTEP_REFERENCES LOCKSTEP_KEYD_SOCKET
    kill "$keyd"
    wait "$keyd" 2> /dev/null || :
}

# Signs with a key that only this side can use, in each way; OpenSSL alone verifies: KEY OPTION...
signed_by_pkeyutl() {
    key=$1
    shift
    tried pkeyutl -sign -rawin -in data -inkey "$key.key" "$@" -out tried.sig &&
        plain pkeyutl -verify -rawin -in data -pubin -inkey "$key.pub" "$@" -sigfile tried.sig &&
        refused plain pkeyutl -verify -rawin -in other -pubin -inkey "$key.pub" "$@" \
            -sigfile tried.sig
}

# The same where one message has one signature, which OpenSSL alone makes, too.
signed_as_alone() {
    signed_by_pkeyutl "$@" || return
    key=$1
    shift
    own=$key.key
    [ -n "$keyd" ] && own=held/$own
    plain pkeyutl -sign -rawin -in data -inkey "$own" "$@" -out plain.sig &&
        cmp tried.sig plain.sig
}

signed_by_dgst() {
    tried dgst -sha256 -sign "$1.key" -out tried.sig data &&
        plain dgst -sha256 -verify "$1.pub" -signature tried.sig data
}

signed_by_req() {
    tried req -x509 -new -key "$1.key" -subj /CN=localhost -days 30 -out again.crt &&
        plain verify -CAfile again.crt again.crt
}

signed_by_cms() {
    tried cms -sign -in data -signer "$1.crt" -inkey "$1.key" -nodetach -outform DER \
        -out signed.cms &&
        plain cms -verify -in signed.cms -inform DER -CAfile "$1.crt" -purpose any -out plain.mail
}

# Handshakes with this key in the client's certificate. s_time reads a key as servers do, by
# PEM_read_bio_PrivateKey, and the openssl command otherwise by a store: KEY
authenticated() {
    tried s_time -connect "127.0.0.1:$port" -new -time 1 -tls1_3 -www / -CAfile client.crt \
        -cert "$1.crt" -key "$1.key" > time.out 2>&1
    cat time.out >&2
    grep -q '^[1-9][0-9]* connections in .* real seconds' time.out && ! grep -q -i error time.out
}

public_half() {
    tried pkey -in "$1.key" -pubout -out tried.form && cmp tried.form "$1.pub"
}

# A key of ML-DSA in a form of OpenSSL's own is refused with a command that writes it anew. That
# leaves the file as it is, which has a certificate too, and the daemon takes what it writes: KEY FORM
written_anew() {
    [ "$tried" = "$plain" ] && return
    rm -f anew.key
    plain pkey -in "$1.key" -provparam "ml-dsa.output_formats=$2" -out older.key &&
        cat older.key "$1.crt" > older.pem && cp older.pem older.kept || return
    printf 'user = %s\n[key older]\nfile = %s\nusers = %s\nuses = sign\n' "$(id -u)" \
        "$PWD/anew.key" "$(id -u)" > anew.conf
    sed s/anew.key/older.pem/ anew.conf > older.conf
    refused "${0%/*}/lockstep" keyd --config older.conf check > older.out 2>&1 || return
    # The command, with an openssl that has no module.
    remedy=$(sed -n 's/.*`openssl \(pkey [^`]*\)`.*/\1/p' older.out | head -n 1 |
        sed 's/ FILE / older.pem /; s/ NEWFILE / anew.key /')
    # shellcheck disable=SC2086
    cat older.out >&2 && [ -n "$remedy" ] && plain $remedy && cmp older.pem older.kept &&
        cat "$1.crt" >> anew.key && "${0%/*}/lockstep" keyd --config anew.conf check >&2
}

references() {
    printf 'a message' > data
    printf 'another message' > other
    for bits in 2048 3072; do
        plain genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:$bits -out rsa$bits.key
    done > keys.out 2>&1
    for curve in P-256 P-384; do
        plain genpkey -algorithm EC -pkeyopt ec_paramgen_curve:$curve -out $curve.key
    done >> keys.out 2>&1
    plain genpkey -algorithm ED25519 -out ed25519.key >> keys.out 2>&1
    keys='rsa2048 rsa3072 P-256 P-384 ed25519'
    for set in 44 65 87; do
        # OpenSSL has them from 3.5 on.
        plain genpkey -algorithm ML-DSA-$set -out mldsa$set.key >> keys.out 2>&1 &&
            keys="$keys mldsa$set"
    done
    head -c 64 /dev/zero > mu
    authority || :
    for key in $keys; do
        plain pkey -in $key.key -pubout -out $key.pub
        certificate $key
        case $key in
            mldsa*)
                certified $key site$key
                for form in bare-seed bare-priv oqskeypair; do
                    check "$key, written anew from $form" written_anew $key $form
                done
                ;;
        esac
    done
    cp P-256.key client.key && cp P-256.crt client.crt
    identity=client
    # shellcheck disable=SC2086
    hold $keys > hold.out 2>&1
    for kind in $keys; do
        check "$kind, public half" public_half $kind
        check "$kind by pkeyutl" signed_by_pkeyutl $kind
        check "$kind by req" signed_by_req $kind
        case $kind in
            ed25519) ;;
            mldsa*)
                check "$kind, deterministic" signed_as_alone $kind -pkeyopt deterministic:1
                check "$kind with a context" signed_as_alone $kind -pkeyopt deterministic:1 \
                    -pkeyopt context-string:word
                check "$kind, raw" signed_as_alone $kind -pkeyopt deterministic:1 \
                    -pkeyopt message-encoding:0
                mv data data.kept && cp mu data
                check "$kind of a hash" signed_as_alone $kind -pkeyopt deterministic:1 \
                    -pkeyopt mu:1
                head -c 100000 /dev/zero > data
                check "$kind, a long message" signed_by_pkeyutl $kind
                mv data.kept data
                # The key is a reference by now.
                cp $kind.key site$kind.key
                serve tried site$kind -www
                over_rustls site$kind
                unserve
                ;;
            *)
                check "$kind by dgst" signed_by_dgst $kind
                check "$kind by cms" signed_by_cms $kind
                ;;
        esac
        serve tried $kind -www
        for version in tls1_2 tls1_3; do
            # ML-DSA is for TLS 1.3 only.
            case "$version $kind" in tls1_2\ mldsa*) continue ;; esac
            groups=X25519:P-256:P-384
            handshake "server with $kind, $version" plain $kind $version $groups
        done
        unserve
        serve tried $kind -www -async
        handshake "server with $kind and jobs" plain $kind tls1_3 X25519
        unserve
        serve plain client -www -Verify 1 -verify_return_error -CAfile $kind.crt
        check "client with $kind" authenticated $kind
        unserve
    done
    unhold
}

# --- async jobs

# Sixty-four jobs at a time, without a word on standard error that is an error. They are company, so
# they pause and share batches.
in_jobs() {
    tried speed -elapsed -seconds 1 -async_jobs 64 "$1" 2> speed.err
    status=$?
    cat speed.err >&2
    [ "$status" = 0 ] && ! grep -i -E 'error|failure' speed.err
}

async() {
    counters=${LOCKSTEP_STATS_DIR:-$PWD}
    for algorithm in rsa2048 ecdsap256 ecdhx25519 ed25519; do
        mkdir -p "$counters/$algorithm"
        export LOCKSTEP_STATS_DIR="$counters/$algorithm"
        check "$algorithm" in_jobs "$algorithm"
    done
}

# --- a server

# Sixteen clients of OpenSSL alone at once, each with some handshakes and without an error. With
# OpenSSL 3.0.2, s_time's exit status is 1 in any case.
clients() {
    numbers='1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16'
    pids=
    for number in $numbers; do
        plain s_time -connect "127.0.0.1:$port" -new -time 2 -CAfile "$1.crt" -verify 1 "-$2" \
            > "client.$number" 2>&1 &
        pids="$pids $!"
    done
    for pid in $pids; do
        wait "$pid"
    done
    for number in $numbers; do
        if ! grep -q '^[1-9][0-9]* connections in .* real seconds' "client.$number" ||
            grep -q -i error "client.$number"; then
            cat "client.$number" >&2
            return 1
        fi
    done
}

# A port that nobody listens on now.
free_port() {
    serve plain "$1" -www
    unserve
}

# The libssl that a program is linked to.
libssl_of() {
    ldd "$(command -v "$1")" | sed -n 's/^[[:space:]]*\(libssl[^ ]*\) .*/\1/p' | head -n 1
}

server() {
    if ! command -v haproxy > path.out; then
        echo 'skipped: no HAProxy is installed'
        return
    fi
    if [ "$(libssl_of haproxy)" != "$(libssl_of "$openssl")" ]; then
        echo "skipped: HAProxy is linked to $(libssl_of haproxy)"
        return
    fi
    {
        new_key rsa RSA -pkeyopt rsa_keygen_bits:2048
        new_key p256 EC -pkeyopt ec_paramgen_curve:P-256
        new_key p384 EC -pkeyopt ec_paramgen_curve:P-384
        new_key mldsa44 ML-DSA-44
        new_key mldsa65 ML-DSA-65
    } > keys.out 2>&1
    sites='rsa p256 p384' held=p384
    # OpenSSL has it from 3.5 on.
    [ -s mldsa44.key ] && sites="$sites mldsa44 mldsa65" held="$held mldsa65"
    for key in $sites; do
        certificate "$key"
    done
    # shellcheck disable=SC2086
    hold $held > hold.out 2>&1
    for site in $sites; do
        # The key first, as it may be a reference: OpenSSL 3.0.2 finds none behind a certificate.
        cat "$site.key" "$site.crt" > "$site.pem"
        free_port rsa
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
    bind 127.0.0.1:$port ssl crt $PWD/$site.pem
    http-request return status 200 content-type text/plain string hello
END
        OPENSSL_CONF=$tried haproxy -db -f haproxy.cfg > haproxy.out 2>&1 &
        haproxy=$!
        sleep 1
        for version in tls1_2 tls1_3; do
            # ML-DSA is for TLS 1.3 only.
            case "$site $version" in mldsa*\ tls1_2) continue ;; esac
            check "HAProxy with $site, $version" clients "$site" $version
        done
        kill -USR1 "$haproxy" 2> /dev/null
        sleep 0.5
        kill "$haproxy" 2> /dev/null
        wait "$haproxy" 2> /dev/null || :
    done
    unhold
}

case $part in
    lists | commands | handshakes | references | async | server) "$part" ;;
    *)
        echo "checks.sh: no part $part; there are lists, commands, handshakes, references, async," \
            "server" >&2
        exit 2
        ;;
esac
