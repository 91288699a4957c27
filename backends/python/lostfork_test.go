package python_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tutti-server/tutti/internal/preparedtest"
)

// lostFork is a module that Python imports when it starts. After the first fork of a worker it records the worker, and kills the fork server
// before that can confirm the fork.
const lostFork = `import os, signal, sys

fork = os.fork


def lose():
    pid = fork()
    if pid == 0 or sys._getframe(1).f_code.co_name != "fork":  # the fork server forks to check itself too
        return pid
    try:
        fd = os.open(os.environ["LOST_FORK"], os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError:
        return pid
    while os.getpgid(pid) != pid:  # in a group of its own it survives
        pass
    os.write(fd, b"%d" % pid)
    os.kill(os.getpid(), signal.SIGKILL)


os.fork = lose
`

// TestForkIsLost kills a fork server between a fork and its confirmation. The worker of that fork must not share its sockets with the worker
// that is started instead, and must exit.
func TestForkIsLost(t *testing.T) {
	t.Parallel()
	o, dir := options(t), t.TempDir()
	lost, wrapper := filepath.Join(dir, "lost"), filepath.Join(dir, "python3")
	script := "#!/bin/sh\nexport LOST_FORK='" + lost + "' PYTHONPATH='" + dir + "'\nexec '" + preparedtest.Runtime(t, "python") + "' \"$@\"\n"
	err := errors.Join(os.WriteFile(wrapper, []byte(script), 0o700), os.WriteFile(filepath.Join(dir, "sitecustomize.py"), []byte(lostFork), 0o600)) //nolint:gosec // it must be executable
	if err != nil {
		t.Fatal(err)
	}
	o.Config = map[string]string{"python-runtime": wrapper, "stub-timeout-seconds": "600"}
	v := instances(t, opened(t, o), 1, nil)[0].report(t)
	text, err := os.ReadFile(lost)
	if err != nil {
		t.Fatalf("no fork was lost: %v", err)
	}
	pid, err := strconv.Atoi(string(text))
	if err != nil || v.pid == pid {
		t.Fatalf("the worker is %+v, the lost one %q", v, text)
	}
	mine := sockets(t, v.pid)
	if len(mine) == 0 {
		t.Error("the worker has no sockets")
	}
	for name := range sockets(t, pid) {
		if mine[name] {
			t.Errorf("workers %d and %d share %s", pid, v.pid, name)
		}
	}
	if t.Failed() {
		return // the lost worker exits with the server
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return // it has exited
	}
	defer unix.Close(fd)
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 60_000) //nolint:gosec // a descriptor fits
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if n != 1 || err != nil {
			t.Errorf("the lost worker %d does not exit: %v", pid, err)
		}
		return
	}
}

// sockets returns the sockets of a process, none if it has exited.
func sockets(t *testing.T, pid int) map[string]bool {
	t.Helper()
	list, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	set := map[string]bool{}
	for _, path := range list {
		if name, err := os.Readlink(path); err == nil && strings.HasPrefix(name, "socket:") {
			set[name] = true
		}
	}
	return set
}
