package tensor

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
)

// Places knows the pool of every place: the host's, that of pinned memory, and those
// of the devices, which come and go with the backends that open them. It is safe for
// concurrent use.
type Places struct {
	host    Allocator
	mu      sync.Mutex // held by who changes the list
	devices atomic.Pointer[[]Accelerator]
	pinned  atomic.Pointer[Allocator]
}

// NewPlaces returns a registry with host memory only.
func NewPlaces(host Allocator) *Places {
	p := &Places{host: host}
	p.devices.Store(&[]Accelerator{})
	return p
}

// Add makes a device known; one place has one device.
func (p *Places) Add(d Accelerator) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.Device(d.Place()) != nil {
		return fmt.Errorf("there is a device at %s already", d.Place())
	}
	list := append(slices.Clone(*p.devices.Load()), d)
	slices.SortFunc(list, func(a, b Accelerator) int { return cmp.Compare(a.Place().ID, b.Place().ID) })
	p.devices.Store(&list)
	return nil
}

// Remove forgets the device at a place, of which nobody holds memory any more.
func (p *Places) Remove(at Place) {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := slices.DeleteFunc(slices.Clone(*p.devices.Load()), func(d Accelerator) bool { return d.Place() == at })
	p.devices.Store(&list)
}

// SetPinned makes pool that of memory that copies to and from devices go through; nil
// for none.
func (p *Places) SetPinned(pool Allocator) {
	if pool == nil {
		p.pinned.Store(nil)
		return
	}
	p.pinned.Store(&pool)
}

// PinnedUsage returns the size of the pool of pinned memory and how much of it is in
// use, in bytes: 0 where there is none, or one that does not tell (as Pool does).
func (p *Places) PinnedUsage() (total, used int64) {
	if pool := p.pinned.Load(); pool != nil {
		if u, ok := (*pool).(interface{ Usage() (total, used int64) }); ok {
			return u.Usage()
		}
	}
	return 0, 0
}

// Device returns the device at a place, or nil.
//
// hot: a scan of a short list.
func (p *Places) Device(at Place) Accelerator {
	for _, d := range *p.devices.Load() {
		if d.Place() == at {
			return d
		}
	}
	return nil
}

// Devices returns the places that are devices, in order.
func (p *Places) Devices() []Place {
	var list []Place
	for _, d := range *p.devices.Load() {
		list = append(list, d.Place())
	}
	return list
}

// Any reports whether there is any device.
//
// hot: one load.
func (p *Places) Any() bool { return len(*p.devices.Load()) > 0 }

// At returns the pool of a place; the host's stands in for pinned memory where there
// is none. It is nil when there is no such device.
func (p *Places) At(at Place) Allocator {
	if at.Kind == Device {
		if d := p.Device(at); d != nil {
			return d
		}
		return nil
	}
	if pool := p.pinned.Load(); at.Kind == Pinned && pool != nil {
		return *pool
	}
	return p.host
}
