package device

import (
	"slices"
	"sync/atomic"

	"github.com/tutti-server/tutti/scheduler/deadline"
)

// Device is a device, or the CPU, whose executions are bounded without the rate limiter. It implements deadline.Device.
type Device struct {
	arbiter *Arbiter
	number  int // -1 for the CPU
	watched atomic.Bool

	bids []*deadline.Bid // of its limiters, each once, guarded by the arbiter's mu
}

// device returns the device of a number. Called with the lock held.
func (a *Arbiter) device(number int) *Device {
	for _, d := range a.devices {
		if d.number == number {
			return d
		}
	}
	d := &Device{arbiter: a, number: number}
	a.devices = append(a.devices, d)
	return d
}

// Bids has deadlines decide when the instance executes, while b has a deadline: against the instances of other models at its device that
// have one, too. It returns the device, nil for an instance at none whose executions are bounded. It is called once, before Acquire.
func (g *Limiter) Bids(b *deadline.Bid) deadline.Device {
	a := g.arbiter
	a.mu.Lock()
	defer a.mu.Unlock()
	d := g.device
	if d == nil {
		return nil
	}
	g.bid = b
	if !slices.Contains(d.bids, b) {
		d.bids = append(d.bids, b)
	}
	return d
}

// leave removes the bid of an instance from its device, if no other instance has it. Called with the lock held, when the arbiter no longer
// has the instance.
func (g *Limiter) leave() {
	d := g.device
	if d == nil || g.bid == nil {
		return
	}
	if !slices.ContainsFunc(d.arbiter.limiters, func(x *Limiter) bool { return x.bid == g.bid }) {
		d.bids = slices.DeleteFunc(d.bids, func(b *deadline.Bid) bool { return b == g.bid })
	}
}

// Load implements deadline.Device.
func (d *Device) Load() (l deadline.Load) {
	a := d.arbiter
	a.mu.Lock()
	defer a.mu.Unlock()
	l.Slots = a.s.Executions
	executing, ends := 0, int64(0)
	for _, g := range a.limiters {
		if g.device != d || !g.in {
			continue
		}
		if executing++; g.ends > 0 && (ends == 0 || g.ends < ends) {
			ends = g.ends
		}
	}
	if executing >= l.Slots {
		l.Busy = max(ends-a.s.Clock(), 0)
	}
	for _, b := range d.bids {
		dated, undated := b.Queued()
		l.Queued, l.Undated = l.Queued+dated, l.Undated+undated
	}
	return l
}

// Watch implements deadline.Device.
func (d *Device) Watch() { d.watched.Store(true) }

// Watched implements deadline.Device.
func (d *Device) Watched() bool { return d.watched.Load() }

// begin notes when the execution that begins is expected to end. Called with the lock held.
func (g *Limiter) begin() {
	if g.ends = 0; g.bid != nil {
		g.ends = g.since + g.bid.Next().Batch
		g.bid.Take()
	}
}

// candidates are the waiting instances among which deadlines choose.
type candidates struct {
	at   []int // in the list of those that wait
	list []deadline.Candidate
}

// pick returns the position of the instance that goes first, when it is the turn of the i-th of those that wait: another one, if both have
// deadlines, share a device, and its batch is the better one. The two change places and tags. Called with the lock held.
func (a *Arbiter) pick(i int) int {
	g := a.waiting[i]
	if g.bid == nil || g.device == nil || !dated(g.bid.Next()) {
		return i
	}
	c := &a.bids
	c.at, c.list = c.at[:0], c.list[:0]
	for j, h := range a.waiting {
		if h.device != g.device || h.bid == nil || !a.fits(h) {
			continue
		}
		if next := h.bid.Next(); dated(next) {
			c.at, c.list = append(c.at, j), append(c.list, next)
		}
	}
	j := c.at[deadline.Pick(a.s.Clock(), c.list)]
	if j != i {
		h := a.waiting[j]
		g.tag, h.tag = h.tag, g.tag
		a.waiting[i], a.waiting[j] = h, g
	}
	return i
}

// dated reports whether a batch has a deadline.
func dated(c deadline.Candidate) bool { return c.Rows > 0 && c.Closes != deadline.NoDeadline }

// fits reports whether all that an execution needs is free and not reserved for those that wait before the one whose turn it is: what
// waitList.next has left. Called with the lock held.
func (a *Arbiter) fits(g *Limiter) bool {
	return !slices.ContainsFunc(g.needs, func(n need) bool { return a.left[n.resource] < n.count })
}
