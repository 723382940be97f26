// A peer that is neither OpenSSL nor ours: Go's own TLS and ML-KEM.
//
// Usage: peer client ADDRESS GROUP        prints the group of a handshake
//        peer server CERTIFICATE KEY GROUP    prints its port, then serves handshakes
//        peer from SEED, peer to PUBLIC, peer open SEED CIPHERTEXT    as encapsulate.c
package main

import (
	"crypto/mlkem"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"io"
	"log"
	"os"
)

func check[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

// Both are what clients in Go offer by themselves.
func group(name string) []tls.CurveID {
	if name == "both" {
		return nil
	}
	groups := map[string]tls.CurveID{
		"X25519MLKEM768": tls.X25519MLKEM768, "SecP256r1MLKEM768": 0x11eb,
		"SecP384r1MLKEM1024": 0x11ed, "X25519": tls.X25519,
	}
	return []tls.CurveID{groups[name]}
}

func bytes(text string) []byte { return check(hex.DecodeString(text)) }

func decapsulationKey(seed string) *mlkem.DecapsulationKey768 {
	return check(mlkem.NewDecapsulationKey768(bytes(seed)))
}

func main() {
	arguments := os.Args[2:]
	switch os.Args[1] {
	case "client":
		config := &tls.Config{InsecureSkipVerify: true, CurvePreferences: group(arguments[1])}
		connection := check(tls.Dial("tcp", arguments[0], config))
		fmt.Println(connection.ConnectionState().CurveID)
		connection.Close()
	case "server":
		certificate := check(tls.LoadX509KeyPair(arguments[0], arguments[1]))
		config := &tls.Config{
			Certificates: []tls.Certificate{certificate}, CurvePreferences: group(arguments[2]),
		}
		listener := check(tls.Listen("tcp", "127.0.0.1:0", config))
		fmt.Println("port", listener.Addr().String())
		for {
			connection := check(listener.Accept())
			fmt.Fprintln(connection, "hello")
			io.Copy(io.Discard, connection)
			connection.Close()
		}
	case "from":
		fmt.Printf("%x\n", decapsulationKey(arguments[0]).EncapsulationKey().Bytes())
	case "to":
		key := check(mlkem.NewEncapsulationKey768(bytes(arguments[0])))
		secret, ciphertext := key.Encapsulate()
		fmt.Printf("%x\n%x\n", ciphertext, secret)
	case "open":
		secret := check(decapsulationKey(arguments[0]).Decapsulate(bytes(arguments[1])))
		fmt.Printf("%x\n", secret)
	}
}
