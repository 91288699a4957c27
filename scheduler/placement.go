package scheduler

import (
	"sync/atomic"

	"github.com/tutti-server/tutti/core/tensor"
)

// Want restricts the kind of place where a task may execute.
type Want uint8

// The wants.
const (
	Anywhere Want = iota
	AtHost
	AtDevice
)

// allows reports whether the place is of the wanted kind.
func (v Want) allows(at tensor.Place) bool {
	return v == Anywhere || (v == AtDevice) == (at.Kind == tensor.Device)
}

// Affinity keeps the steps of one request at one device: the first step that executes at a
// device binds the request to it. For example, once a detector has run on GPU 1, the classifier
// behind it runs there, too, and the crops do not travel. It is safe for concurrent use, but
// for Reset. The zero value is not bound.
type Affinity struct {
	device  atomic.Int32 // its number plus 1, 0 when not bound
	allowed uint64       // devices that all steps at devices can use, by bit; 0 for any
}

// Reset unbinds. allowed has a bit for each device that may be bound to, 0 for any.
func (a *Affinity) Reset(allowed uint64) {
	a.device.Store(0)
	a.allowed = allowed
}

// Bound returns the device; ok is false when there is none yet.
func (a *Affinity) Bound() (at tensor.Place, ok bool) {
	n := a.device.Load()
	return tensor.Place{Kind: tensor.Device, ID: int16(n - 1)}, n > 0
}

// Bind binds to the device at a place unless there is one already, and returns the one that is
// bound.
func (a *Affinity) Bind(at tensor.Place) tensor.Place {
	a.device.CompareAndSwap(0, int32(at.ID)+1)
	bound, _ := a.Bound()
	return bound
}

// Allows reports whether all steps at devices can use this one.
func (a *Affinity) Allows(at tensor.Place) bool {
	return a.allowed == 0 || at.ID < 64 && a.allowed&(1<<uint(at.ID)) != 0
}

// Bound returns the device that the task's request is bound to; ok is false when there is none
// or the task executes on the host.
func (w *Task) Bound() (at tensor.Place, ok bool) {
	if w.Affinity == nil || w.Want == AtHost {
		return tensor.Place{}, false
	}
	return w.Affinity.Bound()
}

// Fits reports whether the task can execute at a place; with together set, whether all steps of
// its request that execute at devices can.
func (w *Task) Fits(at tensor.Place, together bool) bool {
	if !w.Want.allows(at) {
		return false
	}
	return !together || at.Kind != tensor.Device || w.Affinity == nil || w.Affinity.Allows(at)
}
