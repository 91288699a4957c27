// Package simdev simulates accelerators in software, for tests and for graphs that keep tensors on a device. It
// behaves as an accelerator does:
//
//   - Device memory has its own addresses. A host access to one faults.
//   - Streams execute operations asynchronously, each on a goroutine. The owner of a stream must close it.
//   - Allocations and frees are ordered with the streams. Freed memory is poisoned.
//   - Copies take time, real or simulated, and are counted by direction.
//
// Beyond hardware, it detects violated rules: a read before the first write, a use after free, a free before the
// last use, and unordered use by two streams. The operation fails with an error that names both accesses. For
// example: "the fill by stream 'a' is not ordered after the copy from device:0 to host by stream 'b'; expected an
// event between them".
//
// The order comes from vector clocks, one counter per stream (Mattern 1988; race detectors use them), not from the
// actual interleaving, so that the verdict of a test does not depend on speed. Everything that the host has waited
// for is ordered before everything that the host enqueues later, on any goroutine. The check may therefore miss a
// violation, but it never reports a false one.
//
// A Machine holds several devices, which copy to each other.
package simdev

import (
	"errors"
	"fmt"
	"slices"
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

// Machine is a set of simulated devices. It is safe for concurrent use until Close.
type Machine struct {
	devices []*Device

	mu      sync.Mutex // guards the devices and their streams too
	streams int        // IDs given to streams, guarded by mu
	spare   []int      // IDs of closed streams, guarded by mu
	last    clock      // per ID: number of operations so far, guarded by mu
	host    clock      // operations that the host has waited for, guarded by mu
	faults  []error    // violations that no call returned, guarded by mu
}

// New starts n devices, numbered from 0.
func New(n int, o Options) (*Machine, error) {
	if n < 1 || n > 64 {
		return nil, fmt.Errorf("expected 1 to 64 simulated devices, found %d", n)
	}
	if o.Memory == 0 {
		o.Memory = 1 << 30
	}
	m := &Machine{}
	for i := range n {
		s, err := newSpace(o.Memory)
		if err != nil {
			return nil, errors.Join(err, m.Close())
		}
		d := &Device{machine: m, place: Place(i), options: o, space: s, live: map[*tensor.Buffer]*block{}}
		m.mu.Lock()
		d.releases = d.start("release")
		m.mu.Unlock()
		m.devices = append(m.devices, d)
	}
	return m, nil
}

// Devices returns the devices in order.
func (m *Machine) Devices() []*Device { return m.devices }

// Place returns the place of device i.
func Place(i int) tensor.Place { return tensor.Place{Kind: tensor.Device, ID: int16(i)} }

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
	return errors.Join(append(errs, m.Faults())...)
}

// newID returns the ID of a new stream. It reuses IDs of closed streams: their clocks continue, so that accesses of
// the old stream stay in the past. The caller holds mu.
func (m *Machine) newID() int {
	if n := len(m.spare); n > 0 {
		id := m.spare[n-1]
		m.spare = m.spare[:n-1]
		return id
	}
	m.streams++
	return m.streams - 1
}

// clock is a vector clock: per stream, the number of its operations that are complete or ordered before. For
// example, [3 0 1] follows the first three operations of stream 0 and the first of stream 2.
type clock []uint64

// at returns the count of one stream.
func (c clock) at(id int) uint64 {
	if id < len(c) {
		return c[id]
	}
	return 0
}

func (c *clock) set(id int, n uint64) {
	for len(*c) <= id {
		*c = append(*c, 0)
	}
	(*c)[id] = n
}

func (c *clock) join(o clock) {
	for id, n := range o {
		if n > c.at(id) {
			c.set(id, n)
		}
	}
}

// access is one use of memory by an operation of a stream.
type access struct {
	id     int
	n      uint64
	stream string
	what   string
}

func (a *access) String() string { return fmt.Sprintf("the %s by stream '%s'", a.what, a.stream) }

// misses returns the first access of a list that is neither nil nor part of c, or nil.
func (c clock) misses(list []*access) *access {
	for _, a := range list {
		if a != nil && c.at(a.id) < a.n {
			return a
		}
	}
	return nil
}

// history records the accesses to one allocation.
type history struct {
	made  *access // nil: ordered before everything
	wrote *access // the last write
	reads []*access
	ended clock // of the operations that held a reference until they were complete
}

// order returns an error when access a is not ordered after the accesses that it must follow. now is the clock of
// a.
func (h *history) order(b *tensor.Buffer, a *access, now clock, write bool) error {
	list := []*access{h.made, h.wrote}
	if write {
		list = append(list, h.reads...)
	}
	if before := now.misses(list); before != nil {
		return fmt.Errorf("%s: %s is not ordered after %s; expected an event between them", where(b), a, before)
	}
	if !write && h.wrote == nil {
		return fmt.Errorf("%s: %s comes before anything was written there", where(b), a)
	}
	return nil
}

// note adds an access that order has accepted. A stream's later read replaces its earlier ones; a write replaces
// everything before it.
func (h *history) note(a *access, write bool) {
	if write {
		h.wrote, h.reads = a, h.reads[:0]
		return
	}
	if i := slices.IndexFunc(h.reads, func(r *access) bool { return r.id == a.id }); i >= 0 {
		h.reads[i] = a
	} else {
		h.reads = append(h.reads, a)
	}
}

// over returns an error when some access of h may still run at now.
func (h *history) over(b *tensor.Buffer, now clock) error {
	if a := now.misses(append([]*access{h.wrote}, h.reads...)); a != nil {
		return fmt.Errorf("%s: the release is not ordered after %s; expected UsedUntil with an event after it", where(b), a)
	}
	return nil
}

// where describes a buffer in errors.
func where(b *tensor.Buffer) string {
	return fmt.Sprintf("%s of %d bytes at %p", b.Place(), b.Len(), b.Pointer())
}
