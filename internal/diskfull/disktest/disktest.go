// Package disktest gives tests a small disk that they can fill.
package disktest

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Size is the size of the disk in bytes.
const Size = 128 << 10

// variable names the folder at which the process of Run mounts its disk.
const variable = "TUTTI_TEST_SMALL_DISK"

// Main is the TestMain of a package whose tests call Run. It mounts the disk in the process that Run has started.
func Main(m *testing.M) int {
	if dir := os.Getenv(variable); dir != "" {
		if err := unix.Mount("none", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=128k"); err != nil {
			return notMounted
		}
	}
	return m.Run()
}

// notMounted is the exit status of a process that may not mount a disk.
const notMounted = 77

// Run calls f with the folder of an empty disk, in a process of its own that executes only this test. It skips the test where the kernel lets
// this user mount nothing. The package's TestMain must call Main.
func Run(t *testing.T, f func(dir string)) {
	t.Helper()
	if dir := os.Getenv(variable); dir != "" {
		f(dir)
		return
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), variable+"="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	exit, exited := errors.AsType[*exec.ExitError](err)
	switch {
	case err != nil && (!exited || exit.ExitCode() == notMounted):
		t.Skipf("no disk can be mounted here: %v", err)
	case err != nil:
		t.Errorf("with a small disk: %v\n%s", err, out)
	}
}
