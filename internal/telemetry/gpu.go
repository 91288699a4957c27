package telemetry

import "slices"

// GPU is what was measured of a GPU. A value that it does not tell is negative.
type GPU struct {
	UUID string
	// Utilization is the busy share, 0 to 1.
	Utilization float64
	// MemoryTotal and MemoryUsed are in bytes.
	MemoryTotal, MemoryUsed float64
	// PowerUsage and PowerLimit are in watts.
	PowerUsage, PowerLimit float64
	// Energy is that used since the server started, in joules.
	Energy float64
}

// GPUs has the measurements of GPUs exported, made anew when the last ones are older
// than the interval of the options.
func (x *Metrics) GPUs(measure func() []GPU) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.measureGPUs = measure
}

// Measured returns the GPUs as they are exported, none where they are not measured.
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
