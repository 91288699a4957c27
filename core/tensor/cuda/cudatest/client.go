//go:build cgo

package cudatest

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Client is another process with device memory, which shares it by IPC handles. It is safe for concurrent use. For example:
//
//	c := cudatest.NewClient(t)
//	m := c.Alloc(0, 64)
//	m.Write(0, data) // and let the server read m.Handle
type Client struct {
	tb  testing.TB
	run *exec.Cmd

	mu    sync.Mutex
	in    io.WriteCloser // guarded by mu
	out   *bufio.Reader  // guarded by mu
	count int            // guarded by mu
}

// Memory is device memory of a Client.
type Memory struct {
	Handle []byte // 64 bytes
	client *Client
	number int
}

// NewClient starts a client on the checking driver. It ends with the test. It skips the test when the driver was not built.
func NewClient(tb testing.TB) *Client {
	tb.Helper()
	library := Library(tb)
	c := &Client{tb: tb, run: exec.CommandContext(tb.Context(), filepath.Join(filepath.Dir(library), "cuda-client"), library)}
	in, err := c.run.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	out, err := c.run.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	c.in, c.out = in, bufio.NewReader(out)
	if err := c.run.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(c.Kill)
	return c
}

// Kill ends the process without a word to anybody, and waits until it is gone. It may be called twice.
func (c *Client) Kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.in == nil {
		return
	}
	_ = c.run.Process.Kill() // it may have ended
	_ = c.run.Wait()         // says that it was killed
	c.in = nil
}

// call sends one command and returns its result.
func (c *Client) call(format string, args ...any) string {
	c.tb.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.callLocked(format, args...)
}

func (c *Client) callLocked(format string, args ...any) string {
	c.tb.Helper()
	if _, err := fmt.Fprintf(c.in, format+"\n", args...); err != nil {
		c.tb.Fatal(err)
	}
	line, err := c.out.ReadString('\n')
	result, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "ok")
	if err != nil || !ok {
		c.tb.Fatalf("the client's %s failed: %s %v", strings.Fields(format)[0], line, err)
	}
	return strings.TrimPrefix(result, " ")
}

func (c *Client) bytes(text string) []byte {
	c.tb.Helper()
	b, err := hex.DecodeString(text)
	if err != nil {
		c.tb.Fatal(err)
	}
	return b
}

// Alloc allocates n bytes at a device.
func (c *Client) Alloc(device, n int) *Memory {
	c.tb.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	m := &Memory{Handle: c.bytes(c.callLocked("alloc %d %d", device, n)), client: c, number: c.count}
	c.count++
	return m
}

// Write writes b at an offset, and returns when it is there.
func (m *Memory) Write(off int, b []byte) {
	m.client.tb.Helper()
	m.client.call("write %d %d %x", m.number, off, b)
}

// Read returns the n bytes at an offset.
func (m *Memory) Read(off, n int) []byte {
	m.client.tb.Helper()
	return m.client.bytes(m.client.call("read %d %d %d", m.number, off, n))
}

// Free frees the memory.
func (m *Memory) Free() {
	m.client.tb.Helper()
	m.client.call("free %d", m.number)
}
