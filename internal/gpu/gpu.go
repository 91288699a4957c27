// Package gpu opens the GPUs of the machine, as the server's options say.
//
//	gpus, err := gpu.Open(gpu.Settings{})      // no context yet; err says why there is no GPU
//	defer gpus.Close()                         // after the repository
//	s.Accelerators, s.Pinned = gpus.Accelerators(), gpus.Pinned(host)
package gpu

import "github.com/tutti-server/tutti/core/tensor"

// Defaults of Settings, as in Triton.
const (
	DefaultPinned     = 256 << 20
	DefaultCapability = 6.0
)

// Settings are the server's options of GPUs.
type Settings struct {
	Driver     string        // path of the CUDA driver's library, empty for the system's
	Pools      map[int]int64 // bytes of device memory for tensors, by GPU; 0 or no entry is no bound
	Limited    []int         // GPUs that --model-load-gpu-limit names; Open checks their numbers
	PinnedSize int64         // bytes of the pool of pinned memory; 0: none
	Capability float64       // lowest compute capability of GPUs that are used. For example, 7.5
	NoPeers    bool          // copies between GPUs go through the host
}

// Info describes a GPU.
type Info struct {
	Place  tensor.Place
	Name   string
	Memory int64 // bytes
	// Capability is the compute capability. For example, 9.0.
	Capability float64
	Skipped    string // why the GPU is not used; empty if it is
}

// Use is the state of a GPU, or of the pool of pinned memory.
type Use struct {
	Place tensor.Place
	Lost  bool
	// Spilled counts the allocations that got slower memory because the pool was full: at a GPU pinned memory, of pinned memory
	// ordinary host memory.
	Spilled int64
}
