# nginx by a configuration in which nothing is about the module: PORT
port=$1
cat > nginx.conf <<END
daemon off; master_process off; pid nginx.pid;
events { worker_connections 64; }
http {
    access_log off;
    client_body_temp_path tmp; proxy_temp_path tmp; fastcgi_temp_path tmp; scgi_temp_path tmp; uwsgi_temp_path tmp;
    server { listen 127.0.0.1:$port ssl; ssl_certificate site.crt; ssl_certificate_key site.key; location / { return 200 "hello\n"; } }
}
END
PATH=$PATH:/usr/sbin
nginx -p "$PWD" -e stderr -c nginx.conf 2> nginx.err &
server=$!
unset OPENSSL_CONF
for group in X25519 P-256 P-384 P-521; do
    until printf 'GET / HTTP/1.0\r\n\r\n' | openssl s_client -quiet -ign_eof -groups $group -connect 127.0.0.1:$port > reply 2> /dev/null || ! kill -0 $server; do sleep 0.1; done
    echo "$group: $(tail -n 1 reply)"
done
kill $server; wait $server 2> /dev/null
sed 's/^[0-9/: ]* \(\[[a-z]*\]\) [0-9#: *]*/\1 /' nginx.err
