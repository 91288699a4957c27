package simdev

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tutti-server/tutti/core/tensor"
)

// Options configures the devices of a Machine. With the zero value, operations take no time.
type Options struct {
	// Memory is the size of each device's memory in bytes; 0 for 1 GiB. Only used pages cost memory.
	Memory int
	// Latency is the fixed time of every operation.
	Latency time.Duration
	// Bandwidth is the speed of copies in bytes per second; 0 is unlimited.
	Bandwidth int64
	// Real makes streams wait for the duration of their operations. Otherwise Device.Elapsed only counts the time.
	Real bool
}

// defaultMemory is the memory of a device in bytes when Options.Memory is 0.
const defaultMemory = 1 << 30

// Machine is a set of simulated devices. It is safe for concurrent use until Close.
type Machine struct {
	devices []*Device

	mu      sync.Mutex
	streams int     // IDs given to streams, guarded by mu
	spare   []int   // IDs of closed streams, guarded by mu
	last    clock   // per ID: number of operations so far, guarded by mu
	host    clock   // operations that the host has waited for, guarded by mu
	faults  []error // violations that no call returned, guarded by mu
}

// New starts n devices, numbered from 0.
func New(n int, o Options) (*Machine, error) {
	if n < 1 || n > 64 {
		return nil, fmt.Errorf("expected 1 to 64 simulated devices, found %d", n)
	}
	if o.Memory == 0 {
		o.Memory = defaultMemory
	}
	m := &Machine{}
	for i := range n {
		d, err := newDevice(m, int16(i), o)
		if err != nil {
			return nil, errors.Join(err, m.Close())
		}
		m.devices = append(m.devices, d)
	}
	return m, nil
}

// Devices returns the devices in order.
func (m *Machine) Devices() []*Device { return m.devices }

// Place returns the place of device i.
func Place(i int) tensor.Place { return tensor.Place{Kind: tensor.Device, ID: int16(i)} }

// maxFaults bounds the recorded violations.
const maxFaults = 100

// fault records a violation; the caller holds the lock.
func (m *Machine) fault(err error) {
	if len(m.faults) < maxFaults {
		m.faults = append(m.faults, err)
	}
}

// Faults returns the violations so far that no call returned.
func (m *Machine) Faults() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return errors.Join(m.faults...)
}

// Close stops the devices. All streams must be closed before. The error lists the violations that no call returned
// and the buffers still held. It may be called twice.
func (m *Machine) Close() error {
	var errs []error
	for _, d := range m.devices {
		errs = append(errs, d.close())
	}
	m.devices = nil
	errs = append(errs, m.Faults())
	return errors.Join(errs...)
}

// newID returns the ID of a new stream. It reuses IDs of closed streams: their clocks continue, so that accesses of
// the old stream stay in the past.
func (m *Machine) newID() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := len(m.spare); n > 0 {
		id := m.spare[n-1]
		m.spare = m.spare[:n-1]
		return id
	}
	m.streams++
	return m.streams - 1
}

func (m *Machine) recycleID(id int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.spare = append(m.spare, id)
}
