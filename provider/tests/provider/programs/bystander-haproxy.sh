# HAProxy by a configuration in which nothing is about the module: PORT
port=$1
cat site.crt site.key > both.pem
cat > haproxy.cfg <<END
defaults
    mode http
    timeout client 10s
    timeout connect 5s
    timeout server 5s
frontend site
    bind 127.0.0.1:$port ssl crt both.pem
    http-request return status 200 content-type text/plain string "hello"
END
PATH=$PATH:/usr/sbin
haproxy -db -f haproxy.cfg > haproxy.err 2>&1 &
server=$!
unset OPENSSL_CONF
for group in X25519 P-256 P-384 P-521; do
    until printf 'GET / HTTP/1.0\r\n\r\n' | openssl s_client -quiet -ign_eof -groups $group -connect 127.0.0.1:$port > reply 2> /dev/null || ! kill -0 $server; do sleep 0.1; done
    echo "$group: $(tail -n 1 reply)"
done
kill $server; wait $server 2> /dev/null
grep -v '^$' haproxy.err | sed 's/([0-9]*)//; s/^[^:]*: //'
