import ssl, sys
def shake(version):
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    client.maximum_version = version
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(sys.argv[1], sys.argv[2])
    a, b = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(a, b), server.wrap_bio(b, a, server_side=True)]
    done = set()
    for turn in range(20):
        end = ends[turn % 2]
        try:
            end.do_handshake()
            done.add(turn % 2)
        except ssl.SSLError as error:
            print(turn, type(error).__name__)
            if not isinstance(error, ssl.SSLWantReadError): return
        if len(done) == 2: break
    print(ends[0].version(), ends[0].cipher()[0], len(done))
    # Another context, while this connection waits for data.
    for end in reversed(ends):
        try:
            end.read()
        except ssl.SSLWantReadError:
            pass
    kept = ssl.create_default_context(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    for end in ends:
        try:
            end.read()
        except ssl.SSLError as error:
            print("read", type(error).__name__, len(kept))
shake(ssl.TLSVersion.TLSv1_3)
shake(ssl.TLSVersion.TLSv1_2)
