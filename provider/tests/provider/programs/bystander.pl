use strict; use Net::SSLeay;
Net::SSLeay::initialize();
sub left { while (my $e = Net::SSLeay::ERR_get_error()) { print "left by $_[0]: ", Net::SSLeay::ERR_error_string($e), "\n" } }
left("init");
for (1..2) {
    my $ctx = Net::SSLeay::CTX_new() or print "no context\n";
    left("a context");
    my $ssl = Net::SSLeay::new($ctx);
    my ($in, $out) = map { Net::SSLeay::BIO_new(Net::SSLeay::BIO_s_mem()) } 1..2;
    Net::SSLeay::set_bio($ssl, $in, $out);
    my $r = Net::SSLeay::connect($ssl);
    print "connect $r: ", Net::SSLeay::get_error($ssl, $r), ", ", length(Net::SSLeay::BIO_read($out)), " bytes\n";
    left("a connection");
}
