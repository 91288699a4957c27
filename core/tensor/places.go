package tensor

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
)

// Places returns the allocator of each place: the host's, the one of pinned memory, and those
// of the devices, which backends add and remove. It is safe for concurrent use.
type Places struct {
	host    Allocator
	mu      sync.Mutex // held while the list changes
	devices atomic.Pointer[[]Accelerator]
	pinned  atomic.Pointer[Allocator]
}

// NewPlaces returns a registry with host memory only.
func NewPlaces(host Allocator) *Places {
	p := &Places{host: host}
	p.devices.Store(&[]Accelerator{})
	return p
}

// Add registers a device. It fails when the place has one.
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

// Remove unregisters the device at a place. All its memory must have been released.
func (p *Places) Remove(at Place) {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := slices.DeleteFunc(slices.Clone(*p.devices.Load()), func(d Accelerator) bool { return d.Place() == at })
	p.devices.Store(&list)
}

// SetPinned sets the pool of pinned memory, through which copies to and from devices go; nil for
// none.
func (p *Places) SetPinned(pool Allocator) {
	if pool == nil {
		p.pinned.Store(nil)
		return
	}
	p.pinned.Store(&pool)
}

// PinnedUsage returns the size of the pool of pinned memory and its bytes in use; 0 when there
// is no pool, or one without a method Usage.
func (p *Places) PinnedUsage() (total, used int64) {
	if pool := p.pinned.Load(); pool != nil {
		if u, ok := (*pool).(interface{ Usage() (total, used int64) }); ok {
			return u.Usage()
		}
	}
	return 0, 0
}

// Device returns the device at a place, or nil when there is none.
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

// At returns the allocator of a place, or nil when there is no such device. Without pinned
// memory it returns the host's for that.
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
