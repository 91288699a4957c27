package simdev

import (
	"fmt"

	"github.com/tutti-server/tutti/core/tensor"
)

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

// history records the accesses to one allocation.
type history struct {
	made  *access // nil: ordered before everything
	wrote *access // the last write
	reads []access
	ended clock // of the operations that held a reference until they were complete
}

// order returns an error when access a is not ordered after the accesses that it must follow. now is the clock of
// a.
func (h *history) order(b *tensor.Buffer, a *access, now clock, write bool) error {
	if h.made != nil && now.at(h.made.id) < h.made.n {
		return unordered(b, a, h.made)
	}
	if h.wrote != nil && now.at(h.wrote.id) < h.wrote.n {
		return unordered(b, a, h.wrote)
	}
	if !write {
		if h.wrote == nil {
			return fmt.Errorf("%s of %d bytes at %s: %s comes before anything was written there", b.Place(), b.Len(), addr(b), a)
		}
		return nil
	}
	for i := range h.reads {
		if r := &h.reads[i]; now.at(r.id) < r.n {
			return unordered(b, a, r)
		}
	}
	return nil
}

// note adds an access that order has accepted. A stream's later read replaces its earlier ones; a write replaces
// everything before it.
func (h *history) note(a access, write bool) {
	if write {
		h.wrote, h.reads = &a, h.reads[:0]
		return
	}
	for i := range h.reads {
		if h.reads[i].id == a.id {
			h.reads[i] = a
			return
		}
	}
	h.reads = append(h.reads, a)
}

// over returns an error when some access of h may still run at now.
func (h *history) over(b *tensor.Buffer, now clock) error {
	check := func(a *access) error {
		if a == nil || now.at(a.id) >= a.n {
			return nil
		}
		return fmt.Errorf("%s of %d bytes at %s: the release is not ordered after %s; expected UsedUntil with an event after it", b.Place(), b.Len(), addr(b), a)
	}
	if err := check(h.wrote); err != nil {
		return err
	}
	for i := range h.reads {
		if err := check(&h.reads[i]); err != nil {
			return err
		}
	}
	return nil
}

func unordered(b *tensor.Buffer, a, before *access) error {
	return fmt.Errorf("%s of %d bytes at %s: %s is not ordered after %s; expected an event between them", b.Place(), b.Len(), addr(b), a, before)
}

func addr(b *tensor.Buffer) string { return fmt.Sprintf("%p", b.Pointer()) }
