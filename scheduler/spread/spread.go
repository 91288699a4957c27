// Package spread stands in front of a model that has instances at several places: it
// hands each work to the scheduler of one of them. The steps of a request stay at one
// device, to which the first of them binds it, so that its tensors need not travel.
package spread

import (
	"context"
	"errors"
	"slices"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/scheduler"
)

// Site is the scheduler of a model's instances at one place.
type Site struct {
	At tensor.Place
	To scheduler.Scheduler
}

// loaded is a scheduler that knows how many works it has.
type loaded interface{ Load() int64 }

// Spread implements scheduler.Scheduler.
type Spread struct{ sites []Site }

var _ scheduler.Resizable = (*Spread)(nil)

// New returns a scheduler over sites, which move to it; with one site it is that one's.
func New(sites []Site) scheduler.Scheduler {
	if len(sites) == 1 {
		return sites[0].To
	}
	return &Spread{sites: sites}
}

// Enqueue hands every work to the scheduler of its request's device. A request that is
// not bound goes where the fewest works are, among the devices where all its steps can be.
//
// hot: works that go to one place stay together.
func (s *Spread) Enqueue(list scheduler.TaskList, t *scheduler.RunLoop) {
	var part scheduler.TaskList
	to := -1
	for w := list.Pop(); w != nil; w = list.Pop() {
		i := s.pick(w)
		if i != to && part.Len() > 0 {
			s.sites[to].To.Enqueue(part, t)
			part = scheduler.TaskList{}
		}
		to = i
		part.Push(w)
	}
	if part.Len() > 0 {
		s.sites[to].To.Enqueue(part, t)
	}
}

// pick returns the site of a work and binds its request when that is a device.
func (s *Spread) pick(w *scheduler.Task) int {
	if at, bound := w.Bound(); bound {
		if i := s.find(at); i >= 0 {
			return i
		}
		return s.least(w, false) // the model has no instance there
	}
	i := s.least(w, true)
	if s.sites[i].At.Kind != tensor.Device || w.Affinity == nil {
		return i
	}
	if j := s.find(w.Affinity.Bind(s.sites[i].At)); j >= 0 {
		return j
	}
	return i
}

func (s *Spread) find(at tensor.Place) int {
	return slices.IndexFunc(s.sites, func(x Site) bool { return x.At == at })
}

// least returns the site with the fewest works, of the kind that w wants and, when
// together is set, among the devices where all steps of its request can be.
func (s *Spread) least(w *scheduler.Task, together bool) int {
	best, fewest := -1, int64(0)
	for i := range s.sites {
		site := &s.sites[i]
		if !w.Fits(site.At, together) {
			continue
		}
		n := int64(0)
		if l, ok := site.To.(loaded); ok {
			n = l.Load()
		}
		if best < 0 || n < fewest {
			best, fewest = i, n
		}
	}
	switch {
	case best >= 0:
		return best
	case together:
		return s.least(w, false)
	}
	return 0
}

// Help has nothing of its own to help with: the sites' schedulers say when they are ready.
func (s *Spread) Help(t *scheduler.RunLoop) bool {
	for i := range s.sites {
		if s.sites[i].To.Help(t) {
			return true
		}
	}
	return false
}

var _ scheduler.Flusher = (*Spread)(nil)

// Hurry hurries every site.
func (s *Spread) Flush() {
	for i := range s.sites {
		scheduler.Flush(s.sites[i].To)
	}
}

// Add puts more instances to work, each with those of its place. There must be some, and
// the place's scheduler must be Resizable.
func (s *Spread) Add(instances []backends.Instance, gates []scheduler.Limiter) {
	for i, inst := range instances {
		var gate []scheduler.Limiter
		if gates != nil {
			gate = gates[i : i+1]
		}
		s.of(inst).Add(instances[i:i+1], gate)
	}
}

// Remove takes an instance out; its place must have another.
func (s *Spread) Remove(inst backends.Instance, gone func()) { s.of(inst).Remove(inst, gone) }

// of returns the scheduler of an instance's place.
func (s *Spread) of(inst backends.Instance) scheduler.Resizable {
	at := tensor.Place{}
	if stream := backends.StreamOf(inst); stream != nil {
		at = stream.Place()
	}
	return s.sites[s.find(at)].To.(scheduler.Resizable) //nolint:errcheck,forcetypeassert // the contract of Add
}

// InFlight returns how many works are queued or executing at all places.
func (s *Spread) InFlight() (n int64) {
	for i := range s.sites {
		n += s.sites[i].To.InFlight()
	}
	return n
}

// Drain waits for every site.
func (s *Spread) Drain(ctx context.Context) error {
	var errs []error
	for i := range s.sites {
		errs = append(errs, s.sites[i].To.Drain(ctx))
	}
	return errors.Join(errs...)
}

// Close closes every site's scheduler.
func (s *Spread) Close() error {
	var errs []error
	for i := range s.sites {
		errs = append(errs, s.sites[i].To.Close())
	}
	return errors.Join(errs...)
}
