// Package addresstest finds addresses for servers that start later in a test.
package addresstest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"testing"
)

// attempts is how many ports Find tries.
const attempts = 100

// Unused returns the address of Find and fails the test if there is none.
func Unused(tb testing.TB) string {
	tb.Helper()
	address, err := Find()
	if err != nil {
		tb.Fatal(err)
	}
	return address
}

// Find returns a loopback address, HOST:PORT, at which no server listens. The port is one of those that the kernel never chooses itself. So no
// connection and no server that listens at port 0 gets it, as it might get the port of a listener that was closed; only another caller of
// Find may. Where the kernel chooses from all ports, it is one of these.
func Find() (address string, err error) {
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		return "", err
	}
	var first, last int // the ports that the kernel chooses from
	if _, err := fmt.Sscan(string(text), &first, &last); err != nil {
		return "", fmt.Errorf("the range of ports '%s': %w", text, err)
	}
	const privileged = 1024 // ports below need a privilege
	lo, n := privileged, first-privileged
	if n <= 0 {
		lo, n = last+1, 1<<16-last-1
	}
	if n <= 0 {
		lo, n = 0, 1
	}
	for range attempts {
		address = fmt.Sprintf("127.0.0.1:%d", lo+rand.IntN(n)) //nolint:gosec // chance, no secret
		l, err := net.Listen("tcp", address)                   //nolint:noctx // loopback
		if err != nil {
			continue // taken
		}
		return l.Addr().String(), l.Close()
	}
	return "", fmt.Errorf("no free port among %d", attempts)
}
