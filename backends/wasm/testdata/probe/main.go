//go:build wasip1

// Command probe is a module that says what it can reach.
package main

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/tutti-server/tutti/examples/wasm/go/tutti"
)

var _ = tutti.Serve(nil, execute)

func main() {} // not called: the module is a reactor

func refused(err error) string {
	if err != nil {
		return "refused"
	}
	return "allowed"
}

func execute([]tutti.Tensor) (r tutti.Response, err error) {
	input, _ := io.ReadAll(os.Stdin)
	_, root := os.ReadDir("/")
	_, here := os.ReadDir(".")
	_, passwd := os.ReadFile("/etc/passwd")
	_, dial := net.Dial("tcp", "127.0.0.1:80")
	var a, b [16]byte
	_, _ = rand.Read(a[:])
	_, _ = rand.Read(b[:])
	random := "differs"
	if bytes.Equal(a[:], b[:]) {
		random = "repeats"
	}
	begin := time.Now()
	time.Sleep(2 * time.Millisecond)
	list := []string{
		fmt.Sprint("environment: ", len(os.Environ())),
		fmt.Sprint("arguments: ", len(os.Args)),
		fmt.Sprintf("input: %d bytes", len(input)),
		"/: " + refused(root), ".: " + refused(here), "/etc/passwd: " + refused(passwd),
		"write: " + refused(os.WriteFile("/tmp/x", nil, 0o600)),
		"network: " + refused(dial),
		"random: " + random,
		fmt.Sprint("slept: ", time.Since(begin) >= 2*time.Millisecond),
	}
	r.Outputs = []tutti.Output{tutti.StringsOutput("SEEN", []int64{int64(len(list))}, list)}
	return r, nil
}
