package scheduler

import (
	"sync/atomic"

	"github.com/tutti-server/tutti/core/tensor"
)

// Want says at what kind of place a work is to be executed, where there is a choice.
type Want uint8

// The wants.
const (
	Anywhere Want = iota
	AtHost
	AtDevice
)

// allows reports whether a place is one of those wanted.
func (v Want) allows(at tensor.Place) bool {
	return v == Anywhere || (v == AtDevice) == (at.Kind == tensor.Device)
}

// Affinity keeps the steps of one request at one device: the first step that is given
// to a device binds it. It is safe for concurrent use; the zero value is not bound.
type Affinity struct {
	device  atomic.Int32 // its number and 1
	allowed uint64       // devices that every step at a device can be at; 0: any
}

// Reset unbinds; allowed holds a bit for each device that may be bound to, 0 for any.
func (a *Affinity) Reset(allowed uint64) {
	a.device.Store(0)
	a.allowed = allowed
}

// Bound returns the device, false when there is none yet.
func (a *Affinity) Bound() (tensor.Place, bool) {
	n := a.device.Load()
	return tensor.Place{Kind: tensor.Device, ID: int16(n - 1)}, n > 0
}

// Bind binds to the device at a place unless another came first, and returns the one
// it is bound to.
func (a *Affinity) Bind(at tensor.Place) tensor.Place {
	a.device.CompareAndSwap(0, int32(at.ID)+1)
	bound, _ := a.Bound()
	return bound
}

// Allows reports whether all steps at devices can be at this one.
func (a *Affinity) Allows(at tensor.Place) bool {
	return a.allowed == 0 || at.ID < 64 && a.allowed&(1<<uint(at.ID)) != 0
}

// Bound returns the device that the work's request is bound to, unless the work is for
// the host.
func (w *Task) Bound() (tensor.Place, bool) {
	if w.Affinity == nil || w.Want == AtHost {
		return tensor.Place{}, false
	}
	return w.Affinity.Bound()
}

// Fits reports whether the work can be executed at a place, and with together set
// whether every step of its request at a device can be there.
func (w *Task) Fits(at tensor.Place, together bool) bool {
	if !w.Want.allows(at) {
		return false
	}
	return !together || at.Kind != tensor.Device || w.Affinity == nil || w.Affinity.Allows(at)
}
