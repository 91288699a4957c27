// Package cloudtest starts servers that tests read buckets from. They listen on free
// loopback ports and end with the test.
package cloudtest

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// The servers that are fetched from package registries, in the versions tried.
const (
	fakeGCS = "github.com/fsouza/fake-gcs-server@v1.56.1"
	azurite = "azurite@3.37.0"
)

// S3 starts an S3 server with one bucket and returns its URL. It skips the test when
// the server cannot be built, which may take the network once.
func S3(tb testing.TB, bucket string) string {
	tb.Helper()
	program := filepath.Join(tb.TempDir(), "fakes3")
	build(tb, exec.Command("go", "-C", filepath.Join(moduleRoot(), "tools"), "build", "-o", program, "./fakes3"))
	cmd := exec.Command(program, bucket)
	in, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		tb.Fatal(err)
	}
	return "http://" + strings.TrimSpace(line)
}

// GCS starts Google's fake with one bucket and returns its host and port.
func GCS(tb testing.TB, bucket string) string {
	tb.Helper()
	dir := tb.TempDir()
	cmd := exec.Command("go", "install", fakeGCS)
	cmd.Env = append(os.Environ(), "GOBIN="+dir, "GOFLAGS=")
	build(tb, cmd)
	data := filepath.Join(dir, "data", bucket)
	if err := os.MkdirAll(data, 0o700); err != nil {
		tb.Fatal(err)
	}
	host, port := freePort(tb)
	serve(tb, host+":"+port, exec.Command(filepath.Join(dir, "fake-gcs-server"),
		"-scheme", "http", "-host", host, "-port", port, "-backend", "memory", "-data", filepath.Dir(data), "-public-host", host+":"+port))
	return host + ":" + port
}

// Azurite starts Azure's emulator and returns its URL without the account.
func Azurite(tb testing.TB) string {
	tb.Helper()
	if _, err := exec.LookPath("npm"); err != nil {
		tb.Skip("npm is not installed: apt-get install npm")
	}
	dir := tb.TempDir()
	build(tb, exec.Command("npm", "install", "--no-audit", "--no-fund", "--prefix", dir, azurite))
	host, port := freePort(tb)
	serve(tb, host+":"+port, exec.Command(filepath.Join(dir, "node_modules", ".bin", "azurite-blob"),
		"--silent", "--skipApiVersionCheck", "--blobHost", host, "--blobPort", port, "--location", filepath.Join(dir, "data")))
	return "http://" + host + ":" + port
}

// build runs a command that may need the network, and skips the test when it fails.
func build(tb testing.TB, cmd *exec.Cmd) {
	tb.Helper()
	if out, err := cmd.CombinedOutput(); err != nil {
		tb.Skipf("the server cannot be had: %s: %v\n%s", cmd, err, out)
	}
}

// serve starts a server and waits until it listens.
func serve(tb testing.TB, address string, cmd *exec.Cmd) {
	tb.Helper()
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	tb.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	for tick := time.NewTicker(50 * time.Millisecond); ; {
		select {
		case <-ended:
			tb.Fatalf("%s ended", cmd)
		case <-tick.C:
		}
		if c, err := net.Dial("tcp", address); err == nil {
			_ = c.Close()
			tick.Stop()
			return
		}
	}
}

// freePort returns a port that nobody listens on.
func freePort(tb testing.TB) (host, port string) {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer l.Close()
	host, port, err = net.SplitHostPort(l.Addr().String())
	if err != nil {
		tb.Fatal(err)
	}
	return host, port
}

// moduleRoot is the folder of the module that this file is in.
func moduleRoot() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..")
}
