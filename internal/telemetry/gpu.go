package telemetry

import "slices"

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
func (x *Metrics) GPUs(measure func() []GPU) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.measureGPUs = measure
}

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
