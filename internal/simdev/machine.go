package simdev

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tutti-server/tutti/core/tensor"
)

// Options configure the devices of a Machine. The zero value simulates no cost.
type Options struct {
	// Memory is the size of each device's memory in bytes; 0 for 1 GiB. Only used pages cost memory.
	Memory int
	// Latency is the time of every operation besides its bytes.
	Latency time.Duration
	// Bandwidth is how many bytes a second a copy moves; 0: any number.
	Bandwidth int64
	// Real has streams wait as long as their works take; otherwise the time is only
	// counted, by Device.Elapsed.
	Real bool
}

// defaultMemory is the memory of a device without Options.Memory.
const defaultMemory = 1 << 30

// Machine is a number of simulated devices.
type Machine struct {
	devices []*Device

	mu      sync.Mutex
	streams int     // numbers given to streams, guarded by mu
	spare   []int   // numbers of closed streams, guarded by mu
	last    clock   // per number: its works so far, guarded by mu
	host    clock   // what the host waited for, guarded by mu
	faults  []error // broken rules that no call returned, guarded by mu
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

// Place returns that of device i.
func Place(i int) tensor.Place { return tensor.Place{Kind: tensor.Device, ID: int16(i)} }

// maxFaults bounds how many broken rules are kept.
const maxFaults = 100

// fault keeps a broken rule; the caller holds the lock.
func (m *Machine) fault(err error) {
	if len(m.faults) < maxFaults {
		m.faults = append(m.faults, err)
	}
}

// Faults returns the broken rules so far.
func (m *Machine) Faults() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return errors.Join(m.faults...)
}

// Close stops the devices. Their streams must be closed before. The error lists the broken rules
// that no call returned, and the buffers that are still held. It may be called twice.
func (m *Machine) Close() error {
	var errs []error
	for _, d := range m.devices {
		errs = append(errs, d.close())
	}
	m.devices = nil
	errs = append(errs, m.Faults())
	return errors.Join(errs...)
}

// number gives a new stream its number, that of a closed one where there is any: its
// clock goes on, so that accesses of the old one stay in the past.
func (m *Machine) number() int {
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

func (m *Machine) giveBack(id int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.spare = append(m.spare, id)
}
