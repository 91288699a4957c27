//go:build cgo

package cuda

import (
	"slices"
	"sync"
)

// pressure has the functions that give a device's memory back.
type pressure struct {
	mu   sync.Mutex
	list []*func() // guarded by mu
}

// OnPressure registers a function that gives unused memory of the device back, such as the cache of a native runtime's allocator. It
// is called when an allocation finds no memory, before that fails, by any goroutine. It may wait for the device, and must not
// allocate at it. The returned function ends it.
//
//	remove := device.OnPressure(func() { emptyCache() })
func (v *Device) OnPressure(relieve func()) (remove func()) {
	p, at := &v.pressure, &relieve
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list = append(slices.Clone(p.list), at)
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.list = slices.DeleteFunc(slices.Clone(p.list), func(f *func()) bool { return f == at })
	}
}

// Relieve makes the functions of OnPressure and the pool give unused memory back to the device. It waits for the device. A device that was
// not used yet has none.
func (v *Device) Relieve() error {
	if !v.running.Load() {
		return nil
	}
	return v.relieve()
}

// relieve makes the registered functions and the pool give unused memory back.
func (v *Device) relieve() error {
	v.pressure.mu.Lock()
	list := v.pressure.list
	v.pressure.mu.Unlock()
	for _, f := range list {
		(*f)()
	}
	return v.Trim()
}
