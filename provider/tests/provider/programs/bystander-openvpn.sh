# OpenVPN with a key that is elsewhere, which has a library context of its own for it: PORT
openvpn=$(command -v openvpn || echo /usr/sbin/openvpn)
set -- "$1" --dev null --proto udp4 --ca site.crt --cert site.crt --verb 3 --ifconfig-noexec
port=$1
shift
env -u OPENSSL_CONF "$openvpn" "$@" --local 127.0.0.1 --lport "$port" --tls-server --dh none \
    --key site.key > server.log 2>&1 &
server=$!
rm -f client.log
"$openvpn" "$@" --nobind --remote 127.0.0.1 "$port" --tls-client \
    --management "$PWD/management" unix --management-external-key nopadding > client.log 2>&1 &
client=$!
# Until it has seen the server's certificate, and could not sign.
for _ in $(seq 200); do
    grep -q 'TLS handshake failed' client.log && break
    sleep 0.1
done
kill $client $server
wait 2> /dev/null
# Up to there, without the time; and without what OpenVPN says of a module that it looks for by
# its name in the directory of OpenSSL's modules.
sed -n 's/^[0-9: -]* //; /TLS handshake failed/q; p' client.log | grep -i -E 'error|warning|verify' |
    grep -v -E '127.0.0.1|could not load the shared library|name=lockstep|has warnings'
