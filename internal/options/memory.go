package options

import (
	"bytes"
	"math"
	"os"
	"path"
	"strconv"
	"strings"
)

// InFlightBytes returns the most bytes of requests that may be in flight, 0 for no bound: the value of the option,
// by default half of the memory of the machine or its control group.
func (l *Limits) InFlightBytes() int64 {
	if l.InFlight != nil {
		return *l.InFlight
	}
	if n := memory(os.ReadFile); n < math.MaxInt64 {
		return n / 2
	}
	return 0
}

// memory returns the bytes of memory that this process may use: those of the machine, or the smallest limit of its
// control groups, of either version. It returns math.MaxInt64 if neither can be read.
func memory(read func(string) ([]byte, error)) int64 {
	least := int64(math.MaxInt64)
	if text, err := read("/proc/meminfo"); err == nil {
		least = min(least, total(text))
	}
	for _, name := range groupFiles(read) {
		text, err := read(name)
		if err != nil {
			continue
		}
		// A group without a limit says max, or more than there is.
		if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && n > 0 {
			least = min(least, n)
		}
	}
	return least
}

// total returns the memory of the machine from /proc/meminfo.
func total(meminfo []byte) int64 {
	for line := range bytes.Lines(meminfo) {
		f := strings.Fields(string(line))
		if len(f) > 1 && f[0] == "MemTotal:" {
			if kib, err := strconv.ParseInt(f[1], 10, 64); err == nil && kib > 0 && kib < math.MaxInt64>>10 {
				return kib << 10
			}
		}
	}
	return math.MaxInt64
}

// groupFiles lists the files with the limits of the process's control groups and of their ancestors. In a
// container, the process's own group is the root of the file system that it sees.
func groupFiles(read func(string) ([]byte, error)) (list []string) {
	const v2, v1 = "/sys/fs/cgroup", "/sys/fs/cgroup/memory"
	text, err := read("/proc/self/cgroup")
	if err != nil {
		return []string{v2 + "/memory.max", v1 + "/memory.limit_in_bytes"}
	}
	for line := range bytes.Lines(text) {
		f := strings.SplitN(strings.TrimSpace(string(line)), ":", 3)
		switch {
		case len(f) < 3:
		case f[1] == "":
			list = append(list, above(v2, f[2], "memory.max")...)
		case f[1] == "memory":
			list = append(list, above(v1, f[2], "memory.limit_in_bytes")...)
		}
	}
	return list
}

// above lists a file of a group and of all its ancestors.
func above(root, group, file string) (list []string) {
	for group = path.Join("/", group); ; group = path.Dir(group) {
		list = append(list, path.Join(root, group, file))
		if group == "/" {
			return list
		}
	}
}
