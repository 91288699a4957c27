// Package cloudtest starts servers that tests read buckets from. They listen on free
// loopback ports and end with the test.
package cloudtest

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tutti-server/tutti/internal/addresstest"
	"github.com/tutti-server/tutti/internal/preparedtest"
)

// S3 starts an S3 server with one bucket and returns its URL.
func S3(tb testing.TB, bucket string) string {
	tb.Helper()
	cmd := exec.Command(preparedtest.Script(tb, "fakes3", "prepare-cloud", "s3"), bucket)
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
	program := preparedtest.Script(tb, "fake-gcs-server", "prepare-cloud", "gcs")
	data := filepath.Join(tb.TempDir(), bucket)
	if err := os.MkdirAll(data, 0o700); err != nil {
		tb.Fatal(err)
	}
	address := addresstest.Unused(tb)
	host, port, _ := strings.Cut(address, ":")
	serve(tb, address, exec.Command(program,
		"-scheme", "http", "-host", host, "-port", port, "-backend", "memory", "-data", filepath.Dir(data), "-public-host", address))
	return address
}

// Azurite starts Azure's emulator and returns its URL without the account.
func Azurite(tb testing.TB) string {
	tb.Helper()
	program := preparedtest.Script(tb, "azurite", "prepare-cloud", "azure")
	address := addresstest.Unused(tb)
	host, port, _ := strings.Cut(address, ":")
	serve(tb, address, exec.Command(program,
		"--silent", "--skipApiVersionCheck", "--blobHost", host, "--blobPort", port, "--location", filepath.Join(tb.TempDir(), "data")))
	return "http://" + address
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
