package telemetry

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"time"
)

// machine is a measurement of the machine.
type machine struct {
	known             bool
	busy, total, used float64
}

// meter measures the machine.
type meter struct {
	at          int64 // on the clock of Now
	spent, idle uint64
	last        machine
}

// read returns a measurement no older than interval. The busy share is measured since the previous one.
func (m *meter) read(interval time.Duration) machine {
	now := Now()
	if m.last.known && now-m.at < int64(interval) {
		return m.last
	}
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return m.last
	}
	memory, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return m.last
	}
	spent, idle := cpuTicks(stat)
	if d := spent - m.spent; m.last.known && spent > m.spent && idle >= m.idle {
		m.last.busy = 1 - min(1, float64(idle-m.idle)/float64(d))
	}
	m.spent, m.idle, m.at = spent, idle, now
	total, available := meminfo(memory, "MemTotal:"), meminfo(memory, "MemAvailable:")
	m.last.known, m.last.total, m.last.used = total > 0, total, max(0, total-available)
	return m.last
}

// cpuTicks parses the first line of /proc/stat: the ticks of all processors, and those in which they were idle or
// waited for a disk.
func cpuTicks(stat []byte) (all, idle uint64) {
	line, _, _ := bytes.Cut(stat, []byte("\n"))
	const idleField, waitField, guestField = 3, 4, 8
	for i, field := range bytes.Fields(line) {
		n, err := strconv.ParseUint(string(field), 10, 64)
		if err != nil || i-1 >= guestField { // a guest's ticks are in the user's already
			continue
		}
		all += n
		if i-1 == idleField || i-1 == waitField {
			idle += n
		}
	}
	return all, idle
}

// meminfo returns the value of a line of /proc/meminfo, in bytes.
func meminfo(text []byte, key string) float64 {
	for line := range bytes.Lines(text) {
		if f := bytes.Fields(line); len(f) > 1 && string(f[0]) == key {
			kib, err := strconv.ParseUint(string(f[1]), 10, 64)
			if err == nil {
				return float64(kib) * 1024
			}
		}
	}
	return 0
}

// GPU is a measurement of a GPU. A value that the GPU does not report is negative.
type GPU struct {
	UUID string
	// Utilization is the busy share, 0 to 1.
	Utilization float64
	// MemoryTotal and MemoryUsed are in bytes.
	MemoryTotal, MemoryUsed float64
	// PowerUsage and PowerLimit are in watts.
	PowerUsage, PowerLimit float64
	// Energy is the energy used since the server started, in joules.
	Energy float64
}

// GPUs sets the function that measures the GPUs. A scrape calls it when the last measurement is older than the
// interval of the options.
func (x *Metrics) GPUs(measure func() []GPU) { set(x, &x.measureGPUs, measure) }

// Measured returns the exported GPUs, none where they are not measured.
func (x *Metrics) Measured() []GPU {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.readGPUs()
	return slices.Clone(x.gpus)
}

// readGPUs measures unless the last measurement is recent. The caller holds x.mu.
func (x *Metrics) readGPUs() {
	now := Now()
	if x.measureGPUs == nil || x.gpusAt != 0 && now-x.gpusAt < int64(x.o.Interval) {
		return
	}
	x.gpus, x.gpusAt = x.measureGPUs(), now
}
