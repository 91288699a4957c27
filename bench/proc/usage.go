package proc

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

var errNoProcess error = unix.ESRCH

// tick is the unit of the times in /proc/PID/stat, the same on every Linux.
const tick = 10 * time.Millisecond

// CPU returns the CPU time of a process and its tree. For running processes it is exact to the nanosecond, from
// their clocks, which include ended threads. For ended children it is in ticks.
func CPU(pid int) (time.Duration, error) {
	all, err := tree(pid)
	if err != nil {
		return 0, err
	}
	if len(all) == 0 {
		return 0, fmt.Errorf("process %d is gone", pid)
	}
	var sum time.Duration
	for _, s := range all {
		own, err := clock(s.pid)
		if gone(err) {
			continue // its parent has its time now, or at the next reading
		}
		if err != nil {
			return 0, fmt.Errorf("CPU time of process %d: %w", s.pid, err)
		}
		sum += own + time.Duration(s.reaped)*tick
	}
	return sum, nil
}

// clock reads the CPU clock of one process. It builds the clock id as clock_getcpuclockid does.
func clock(pid int) (time.Duration, error) {
	const scheduled = 2
	var ts unix.Timespec
	err := unix.ClockGettime(int32(^pid)<<3|scheduled, &ts) //nolint:gosec // process ids have 22 bits
	if errors.Is(err, unix.EINVAL) {
		err = errNoProcess // the kernel's error for a process that has ended
	}
	return time.Duration(ts.Nano()), err
}

// Memory is the memory of a process tree, in bytes.
type Memory struct {
	// Resident is the sum over the processes, each with all the memory that it shares.
	Resident int64
	// Proportional counts memory that n processes share as 1/n for each, and so once in total.
	Proportional int64
}

// Use returns the memory of a process and its tree.
func Use(pid int) (Memory, error) {
	all, err := tree(pid)
	if err != nil {
		return Memory{}, err
	}
	if len(all) == 0 {
		return Memory{}, fmt.Errorf("process %d is gone", pid)
	}
	var m Memory
	for _, s := range all {
		one, err := use(s.pid)
		if err != nil && !gone(err) {
			return Memory{}, err
		}
		m.Resident += one.Resident
		m.Proportional += one.Proportional
	}
	return m, nil
}

// use reads the memory of one process.
func use(pid int) (m Memory, err error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return m, err
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	for s.Scan() {
		name, rest, _ := strings.Cut(s.Text(), ":")
		to := map[string]*int64{"Rss": &m.Resident, "Pss": &m.Proportional}[name]
		if to == nil {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
		if err != nil {
			return m, fmt.Errorf("%s of process %d: %w", name, pid, err)
		}
		*to = kib << 10
	}
	return m, s.Err()
}

// ResetPeak makes the peak memory of a process its present memory.
func ResetPeak(pid int) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0) // see proc(5)
}

// Peak returns the largest resident memory of a process, without its tree, since its start or ResetPeak, in bytes.
func Peak(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("the peak memory of process %d is not known", pid)
}
