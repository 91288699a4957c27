package cli

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
)

// sharedMemory is the folder of POSIX shared memory, which clients and Python workers use.
const sharedMemory = "/dev/shm"

// scarce is the size of shared memory below which doctor warns. For example, containers have 64 MiB by default,
// which the first region of a worker uses up.
const scarce = 256 << 20

// machine checks what backends and their clients need of the machine.
func machine(ctx context.Context) []finding {
	list := []finding{
		{"system", runtime.GOOS == "linux", fmt.Sprintf("%s/%s, %d processors for this program", runtime.GOOS, runtime.GOARCH, runtime.GOMAXPROCS(0))},
		shared(),
		tool(ctx, "python3", "for the python backend and for fetching libraries", "--version"),
		tool(ctx, "g++", "for the pytorch backend's shim", "-dumpfullversion"),
	}
	return append(list, gpus())
}

func shared() finding {
	var s syscall.Statfs_t
	if err := syscall.Statfs(sharedMemory, &s); err != nil {
		return finding{"shared memory", false, err.Error()}
	}
	total, free := s.Blocks*uint64(s.Bsize), s.Bavail*uint64(s.Bsize) //nolint:gosec // block sizes are positive
	text := fmt.Sprintf("%s: %d MiB, %d MiB free", sharedMemory, total>>20, free>>20)
	if total < scarce {
		return finding{"shared memory", false, text + ": start the container with --shm-size=1g"}
	}
	return finding{"shared memory", true, text}
}

// tool runs a program to print its version.
func tool(ctx context.Context, name, use, flag string) finding {
	path, err := exec.LookPath(name)
	if err != nil {
		return finding{name, false, "not found, wanted " + use}
	}
	out, err := exec.CommandContext(ctx, path, flag).Output()
	if err != nil {
		return finding{name, false, path + ": " + err.Error()}
	}
	return finding{name, true, strings.TrimSpace(string(out)) + ", " + path}
}

// gpus counts the devices of NVIDIA's driver.
func gpus() finding {
	found, err := filepath.Glob("/dev/nvidia[0-9]*")
	if err != nil || len(found) == 0 {
		return finding{"gpu", false, "no NVIDIA device: models run on the host"}
	}
	version, err := os.ReadFile("/proc/driver/nvidia/version")
	if err != nil {
		return finding{"gpu", false, "devices without a driver: " + err.Error()}
	}
	first, _, _ := strings.Cut(string(version), "\n")
	return finding{"gpu", true, fmt.Sprintf("%d devices, %s", len(found), first)}
}
