// Package proctest checks that processes end with their server.
package proctest

import (
	"errors"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// exitTime is how long a process may take to exit after its server, in milliseconds.
const exitTime = 60_000

// KillServer kills a server that was started, waits for it, and checks that its process pid exits, too. If it does not, the test fails
// and KillServer kills it.
func KillServer(t *testing.T, server *exec.Cmd, pid int) {
	t.Helper()
	process, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(process)
	if err := server.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = server.Wait() // killed
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(process), Events: unix.POLLIN}}, exitTime) //nolint:gosec // a descriptor fits
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if n != 1 || err != nil {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			t.Errorf("process %d outlives its server: %v", pid, err)
		}
		return
	}
}
