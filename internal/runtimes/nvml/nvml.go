// Package nvml measures NVIDIA's GPUs with the driver's management library, which is
// opened at run time: where it is missing there are no measurements.
package nvml

/*
#include <stddef.h>

typedef void *tt_device;
typedef struct { unsigned int gpu, memory; } tt_utilization;
typedef struct { unsigned long long total, free, used; } tt_memory;

static int tt_call(void *f) { return ((int (*)(void))f)(); }
static int tt_count(void *f, unsigned int *n) { return ((int (*)(unsigned int *))f)(n); }
static int tt_handle(void *f, unsigned int i, tt_device *d) { return ((int (*)(unsigned int, tt_device *))f)(i, d); }
static int tt_text(void *f, tt_device d, char *s, unsigned int n) { return ((int (*)(tt_device, char *, unsigned int))f)(d, s, n); }
static int tt_rates(void *f, tt_device d, tt_utilization *u) { return ((int (*)(tt_device, tt_utilization *))f)(d, u); }
static int tt_bytes(void *f, tt_device d, tt_memory *m) { return ((int (*)(tt_device, tt_memory *))f)(d, m); }
static int tt_word(void *f, tt_device d, unsigned int *v) { return ((int (*)(tt_device, unsigned int *))f)(d, v); }
static int tt_long(void *f, tt_device d, unsigned long long *v) { return ((int (*)(tt_device, unsigned long long *))f)(d, v); }
*/
import "C"

import (
	"fmt"
	"sync"
	"unsafe"

	"github.com/tutti-server/tutti/backends/dylib"
	"github.com/tutti-server/tutti/internal/telemetry"
)

// Name is the file name of the library.
const Name = "libnvidia-ml.so.1"

const (
	uuidBytes = 96
	maxGPUs   = 1024
	milli     = 1e-3
	percent   = 1e-2
	unknown   = -1
)

// Functions of the library.
const (
	initialize = iota
	shutdown
	count
	handle
	uuid
	rates
	memory
	usage
	limit
	energy
)

var names = [...]string{
	"nvmlInit_v2", "nvmlShutdown", "nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetUUID", "nvmlDeviceGetUtilizationRates",
	"nvmlDeviceGetMemoryInfo", "nvmlDeviceGetPowerUsage", "nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetTotalEnergyConsumption",
}

// Meter measures the GPUs. It is safe for concurrent use.
type Meter struct {
	symbols [len(names)]unsafe.Pointer

	mu   sync.Mutex
	gpus []gpu // guarded by mu; nil after Close
}

// gpu is one GPU and its energy counter, in millijoules, when the Meter was opened.
type gpu struct {
	device C.tt_device
	uuid   string
	before C.ulonglong
}

// Open opens the library at path, or by its Name, and finds the GPUs. The error names the missing library or
// function, or the driver's error.
func Open(path string) (*Meter, error) {
	lib, err := dylib.Open(path, false)
	if err != nil {
		return nil, err
	}
	m := &Meter{}
	for i, name := range names {
		if m.symbols[i], err = lib.Symbol(name); err != nil {
			return nil, err
		}
	}
	if rc := C.tt_call(m.symbols[initialize]); rc != 0 {
		return nil, fmt.Errorf("nvmlInit_v2 of %s returned %d, expected 0", path, int(rc))
	}
	if err := m.list(); err != nil {
		C.tt_call(m.symbols[shutdown])
		return nil, err
	}
	return m, nil
}

// list finds the GPUs. A GPU with an error is left out.
func (m *Meter) list() error {
	n := new(C.uint)
	if rc := C.tt_count(m.symbols[count], n); rc != 0 || *n > maxGPUs {
		return fmt.Errorf("nvmlDeviceGetCount_v2 returned %d and %d GPUs, expected 0 and at most %d", int(rc), uint(*n), maxGPUs)
	}
	m.gpus = []gpu{}
	for i := range *n {
		device, text, before := new(C.tt_device), new([uuidBytes]C.char), new(C.ulonglong)
		if C.tt_handle(m.symbols[handle], i, device) != 0 || C.tt_text(m.symbols[uuid], *device, &text[0], uuidBytes) != 0 {
			continue
		}
		text[uuidBytes-1] = 0
		C.tt_long(m.symbols[energy], *device, before)
		m.gpus = append(m.gpus, gpu{*device, C.GoString(&text[0]), *before})
	}
	return nil
}

// Read measures every GPU. Unknown values are -1.
func (m *Meter) Read() []telemetry.GPU {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := make([]telemetry.GPU, 0, len(m.gpus))
	for i := range m.gpus {
		list = append(list, m.read(&m.gpus[i]))
	}
	return list
}

func (m *Meter) read(g *gpu) telemetry.GPU {
	x := telemetry.GPU{
		UUID: g.uuid, Utilization: unknown, MemoryTotal: unknown, MemoryUsed: unknown,
		PowerUsage: m.watts(m.symbols[usage], g), PowerLimit: m.watts(m.symbols[limit], g), Energy: unknown,
	}
	percents, bytes, millijoules := new(C.tt_utilization), new(C.tt_memory), new(C.ulonglong)
	if C.tt_rates(m.symbols[rates], g.device, percents) == 0 {
		x.Utilization = float64(percents.gpu) * percent
	}
	if C.tt_bytes(m.symbols[memory], g.device, bytes) == 0 {
		x.MemoryTotal, x.MemoryUsed = float64(bytes.total), float64(bytes.used)
	}
	if C.tt_long(m.symbols[energy], g.device, millijoules) == 0 && *millijoules >= g.before {
		x.Energy = float64(*millijoules-g.before) * milli
	}
	return x
}

// watts calls a function that returns milliwatts.
func (*Meter) watts(f unsafe.Pointer, g *gpu) float64 {
	mw := new(C.uint)
	if C.tt_word(f, g.device, mw) != 0 {
		return unknown
	}
	return float64(*mw) * milli
}

// Close closes the library. It may be called twice.
func (m *Meter) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.gpus == nil {
		return nil
	}
	m.gpus = nil
	if rc := C.tt_call(m.symbols[shutdown]); rc != 0 {
		return fmt.Errorf("nvmlShutdown returned %d, expected 0", int(rc))
	}
	return nil
}
