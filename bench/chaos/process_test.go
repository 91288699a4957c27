package main

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSharedMemory checks that a file in shared memory counts unless a process beside the server has mapped it.
func TestSharedMemory(t *testing.T) {
	t.Parallel()
	f, err := os.CreateTemp("/dev/shm", "tutti-test-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if err := f.Truncate(4096); err != nil {
		t.Fatal(err)
	}
	counted := func(server ...int) bool {
		var s state
		if err := s.sharedMemory(server); err != nil {
			t.Fatal(err)
		}
		for _, name := range s.Shared {
			if name == filepath.Base(f.Name()) {
				return s.SharedBytes >= 4096
			}
		}
		return false
	}
	if !counted() {
		t.Error("a file that no process has mapped does not count")
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ, unix.MAP_SHARED) //nolint:gosec // a descriptor is small
	if err != nil {
		t.Fatal(err)
	}
	if counted() {
		t.Error("the file of another process counts")
	}
	if !counted(os.Getpid()) {
		t.Error("a file that the server has mapped does not count")
	}
	if err := unix.Munmap(mem); err != nil {
		t.Fatal(err)
	}
}
