package telemetry

import (
	"slices"
	"time"

	"github.com/prometheus/procfs"
)

// machine is a measurement of the machine.
type machine struct {
	known             bool
	busy, total, used float64
}

// meter measures the machine.
type meter struct {
	at          int64   // on the clock of Now
	spent, idle float64 // seconds of all processors, and those in which they were idle or waited for a disk
	last        machine
}

// read returns a measurement no older than interval. The busy share is measured since the previous one.
func (m *meter) read(interval time.Duration) machine {
	now := Now()
	if m.last.known && now-m.at < int64(interval) {
		return m.last
	}
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return m.last
	}
	stat, err := fs.Stat()
	if err != nil {
		return m.last
	}
	memory, err := fs.Meminfo()
	if err != nil || memory.MemTotalBytes == nil || memory.MemAvailableBytes == nil {
		return m.last
	}
	c := &stat.CPUTotal
	idle := c.Idle + c.Iowait
	spent := idle + c.User + c.Nice + c.System + c.IRQ + c.SoftIRQ + c.Steal // a guest's time is in the user's
	if m.last.known && spent > m.spent && idle >= m.idle {
		m.last.busy = 1 - min(1, (idle-m.idle)/(spent-m.spent))
	}
	m.spent, m.idle, m.at = spent, idle, now
	total, available := float64(*memory.MemTotalBytes), float64(*memory.MemAvailableBytes)
	m.last.known, m.last.total, m.last.used = total > 0, total, max(0, total-available)
	return m.last
}

// GPU is a measurement of a GPU. A value that the GPU does not report is negative.
type GPU struct {
	UUID        string
	Utilization float64 // the busy share, 0 to 1
	// MemoryTotal and MemoryUsed are in bytes.
	MemoryTotal, MemoryUsed float64
	// PowerUsage and PowerLimit are in watts.
	PowerUsage, PowerLimit float64
	Energy                 float64 // the energy used since the server started, in joules
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
