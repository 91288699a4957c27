package cuda

/*
#include "driver.h"
*/
import "C"

import (
	"sync"
	"time"
)

// clock places events of a device on the host's clock, by a reference event whose time on the host is known to lie between two readings.
type clock struct {
	mu            sync.Mutex
	event         C.cu_event // the reference; nil: none yet
	before, after time.Time  // readings of the host around it
}

const (
	// maxAge bounds the age of a reference: the driver returns times as 32-bit floats, and the clocks drift.
	maxAge = 100 * time.Millisecond
	// drift is how much the clocks may drift from each other: 1 part in so many.
	drift = 10_000
	// resolution is that of times between events.
	resolution = time.Microsecond
	// narrow is how far apart the two readings of a good reference are. Another thread may run in between.
	narrow = 50 * time.Microsecond
	// attempts bounds how often a narrower reference is tried.
	attempts = 3
)

// placed returns when the device reached e, which was recorded after submitted, and how far off that may be.
func (c *clock) placed(v *Device, e C.cu_event, submitted time.Time) (at time.Time, within time.Duration, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// Which of the two events is first must be known: CUDA does not define the time from a later to an earlier one.
	first := c.event != nil && c.after.Before(submitted) && time.Since(c.after) < maxAge
	if !first {
		if err := c.set(v); err != nil {
			return at, 0, err
		}
	}
	from, to := c.event, e
	if !first {
		from, to = e, c.event
	}
	ns, err := v.elapsed(from, to)
	if err != nil {
		return at, 0, err
	}
	half := c.after.Sub(c.before) / 2
	within = half + resolution + time.Duration(ns/drift)
	if !first {
		ns = -ns
	}
	return c.before.Add(half + time.Duration(ns)), within, nil
}

// set records a new reference, in a stream that has no other work in general, and waits for it.
func (c *clock) set(v *Device) error {
	t := v.driver.table
	if c.event == nil {
		const blocking = 1
		a := C.tutti_cuda_event_new(t, v.ctx, blocking)
		if err := v.check(a.result, "cuEventCreate"); err != nil {
			return err
		}
		c.event = a.event
	}
	for range attempts {
		c.before = time.Now()
		if err := v.check(C.tutti_cuda_event_record(t, v.ctx, c.event, v.now.handle), "cuEventRecord"); err != nil {
			return err
		}
		if err := v.check(C.tutti_cuda_event_sync(t, v.ctx, c.event), "cuEventSynchronize"); err != nil {
			return err
		}
		if c.after = time.Now(); c.after.Sub(c.before) < narrow {
			break
		}
	}
	return nil
}
