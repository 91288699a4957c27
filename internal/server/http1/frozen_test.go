package http1_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tutti-server/tutti/internal/server/http1"
)

// frozenVariable makes TestFrozen serve in a process of its own.
const frozenVariable = "TUTTI_TEST_FROZEN"

// frozenIdle is the idle time of its connections.
const frozenIdle = 300 * time.Millisecond

// TestFrozen stops the process of a server while a connection is idle, until its idle time is over, and sends a request meanwhile: it has
// its response once the process goes on.
func TestFrozen(t *testing.T) {
	t.Parallel()
	if os.Getenv(frozenVariable) != "" {
		set := settings(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "done") })
		set.IdleTimeout = frozenIdle
		if _, err := fmt.Fprintln(os.Stdout, start(t, http1.New(set))); err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, os.Stdin) // until the test ends
		return
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe, "-test.run=^TestFrozen$")
	cmd.Env, cmd.Stderr = append(os.Environ(), frozenVariable+"=1"), os.Stderr
	in, err := cmd.StdinPipe()
	out, failed := cmd.StdoutPipe()
	if err = errors.Join(err, failed, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = in.Close()
		_ = cmd.Wait() // its tests are not this one
	}()
	addr, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	for served := 0; served < 5 && !t.Failed(); {
		if freeze(t, cmd.Process.Pid, strings.TrimSpace(addr)) {
			served++
		}
	}
}

// freeze sends the two requests of a connection, and reports whether the connection was open when the process was stopped.
func freeze(t *testing.T, pid int, addr string) bool {
	t.Helper()
	c := dial(t, addr)
	defer c.Close()
	r := bufio.NewReader(c)
	request := func() error {
		_, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		return err
	}
	response := func() error {
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if text, err := io.ReadAll(resp.Body); err != nil || string(text) != "done" {
			return fmt.Errorf("the response is %q, %w", text, err)
		}
		return nil
	}
	if err := errors.Join(request(), response()); err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Kill(pid, unix.SIGCONT) }()
	for stopped := false; !stopped; {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			t.Fatal(err)
		}
		_, state, _ := strings.Cut(string(text), ") ")
		stopped = strings.HasPrefix(state, "T")
	}
	_ = c.SetReadDeadline(time.Now().Add(frozenIdle + 10*time.Millisecond)) // from here on the idle time is over
	if _, err := r.Peek(1); !errors.Is(err, os.ErrDeadlineExceeded) {
		return false // on a slow machine the time was over before
	}
	_ = c.SetReadDeadline(time.Now().Add(time.Minute))
	if err := request(); err != nil {
		t.Error(err)
	}
	if err := unix.Kill(pid, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := response(); err != nil {
		t.Errorf("the request that arrived meanwhile: %v", err)
	}
	return true
}
