// Package spread schedules a model with instances at several places: it enqueues each task at the scheduler of one
// place. The first step of a request that executes at a device binds the request to it, so that its tensors do not
// travel. For example, with instances on GPU 0 and 1, a request bound to GPU 1 goes there even when GPU 0 is idle.
package spread

import (
	"context"
	"errors"
	"slices"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/batch"
	"github.com/tutti-server/tutti/scheduler/deadline"
)

// Placed is the scheduler of a model's instances at one place.
type Placed struct {
	At tensor.Place
	To scheduler.Scheduler
	// Lost returns why the place cannot be used any more, or nil. Requests go elsewhere if they can. A nil Lost is for the host.
	Lost func() error
}

func (x *Placed) lost() bool { return x.Lost != nil && x.Lost() != nil }

// Spread implements scheduler.Scheduler.
type Spread struct{ targets []Placed }

// New returns a scheduler over targets, which move to it. With one target it returns that target's scheduler.
func New(targets []Placed) scheduler.Scheduler {
	if len(targets) == 1 {
		return targets[0].To
	}
	return &Spread{targets: targets}
}

// Enqueue enqueues each task at the device of its request. A request that is not bound goes to the place
// with the fewest tasks, among the devices where all its steps can execute.
//
// hot: tasks for one place stay together.
func (s *Spread) Enqueue(list scheduler.TaskList, t *scheduler.RunLoop) {
	var part scheduler.TaskList
	to := -1
	for w := list.Pop(); w != nil; w = list.Pop() {
		i := s.pick(w)
		if i != to && part.Len() > 0 {
			s.targets[to].To.Enqueue(part, t)
			part = scheduler.TaskList{}
		}
		to = i
		part.Push(w)
	}
	if part.Len() > 0 {
		s.targets[to].To.Enqueue(part, t)
	}
}

// pick returns the target of a task and binds its request when it is a device.
func (s *Spread) pick(w *scheduler.Task) int {
	if at, bound := w.Bound(); bound {
		if i := s.find(at); i >= 0 && !s.targets[i].lost() {
			return i
		}
		if i := s.resident(w); i >= 0 {
			return i
		}
		return s.least(w, false) // the model has no instance there
	}
	i := s.resident(w)
	if i < 0 {
		i = s.least(w, true)
	}
	if s.targets[i].At.Kind != tensor.Device || w.Affinity == nil {
		return i
	}
	if j := s.find(w.Affinity.Bind(s.targets[i].At)); j >= 0 {
		return j
	}
	return i
}

// resident returns the target where the task's first input in device memory is, -1 for none: another place would copy the input.
func (s *Spread) resident(w *scheduler.Task) int {
	for port := range w.In {
		t := &w.In[port]
		if !t.Present() || t.Buf.Place().Kind != tensor.Device {
			continue
		}
		if i := s.find(t.Buf.Place()); i >= 0 && w.Fits(s.targets[i].At, true) && !s.targets[i].lost() {
			return i
		}
	}
	return -1
}

func (s *Spread) find(at tensor.Place) int {
	return slices.IndexFunc(s.targets, func(x Placed) bool { return x.At == at })
}

// least returns the target with the fewest tasks that w fits; with together set, that all its device steps fit. Lost
// places count only if there is no other.
func (s *Spread) least(w *scheduler.Task, together bool) int {
	best, fewest, usable := -1, int64(0), false
	for i := range s.targets {
		at := &s.targets[i]
		if !w.Fits(at.At, together) {
			continue
		}
		n, live := at.To.InFlight(), !at.lost()
		if best < 0 || live && !usable || live == usable && n < fewest {
			best, fewest, usable = i, n, live
		}
	}
	if !usable && together {
		return s.least(w, false)
	}
	return max(best, 0)
}

// Load implements scheduler.Measurable: the instances of all places, and the wait at the place where it is shortest.
func (s *Spread) Load() (sum scheduler.Load) {
	for i := range s.targets {
		l := scheduler.LoadOf(s.targets[i].To)
		if sum.Busy, sum.Instances = sum.Busy+l.Busy, sum.Instances+l.Instances; i == 0 || l.Wait < sum.Wait {
			sum.Wait = l.Wait
		}
	}
	return sum
}

// Forecast implements scheduler.Forecaster: that of the place where a task would be done first.
func (s *Spread) Forecast(now, due int64, of *infer.Client) (best deadline.Stage, ok bool) {
	for i := range s.targets {
		if stage, known := scheduler.ForecastOf(s.targets[i].To, now, due, of); known && (!ok || stage.Wait() < best.Wait()) {
			best, ok = stage, true
		}
	}
	return best, ok
}

// Help helps the targets' schedulers, which call RunLoop.Ready themselves.
func (s *Spread) Help(t *scheduler.RunLoop) bool {
	for i := range s.targets {
		if s.targets[i].To.Help(t) {
			return true
		}
	}
	return false
}

// Flush flushes every target.
func (s *Spread) Flush() {
	for i := range s.targets {
		scheduler.Flush(s.targets[i].To)
	}
}

// Add implements scheduler.Resizable. Each place must have a target already, with a Resizable scheduler.
func (s *Spread) Add(instances []backends.Instance, limiters []scheduler.Limiter) {
	for i, inst := range instances {
		s.of(inst).Add(instances[i:i+1], limiters[min(i, len(limiters)):min(i+1, len(limiters))])
	}
}

// Remove implements scheduler.Resizable. The place must have another instance.
func (s *Spread) Remove(inst backends.Instance, gone func()) { s.of(inst).Remove(inst, gone) }

// Lose implements scheduler.Losing. Each target must do so.
func (s *Spread) Lose(at tensor.Place, why error, gone func(inst backends.Instance)) {
	if i := s.find(at); i >= 0 {
		s.targets[i].To.(scheduler.Losing).Lose(at, why, gone) //nolint:errcheck,forcetypeassert // the contract
	}
}

// of returns the scheduler of an instance's place.
func (s *Spread) of(inst backends.Instance) scheduler.Resizable {
	return s.targets[s.find(batch.PlaceOf(inst))].To.(scheduler.Resizable) //nolint:errcheck,forcetypeassert // the contract of Add
}

// InFlight returns how many tasks are queued or executing at all places.
func (s *Spread) InFlight() (n int64) {
	for i := range s.targets {
		n += s.targets[i].To.InFlight()
	}
	return n
}

// Drain waits for every target.
func (s *Spread) Drain(ctx context.Context) error {
	var errs []error
	for _, x := range s.targets {
		errs = append(errs, x.To.Drain(ctx))
	}
	return errors.Join(errs...)
}

// Close closes every target's scheduler.
func (s *Spread) Close() error {
	var errs []error
	for i := range s.targets {
		errs = append(errs, s.targets[i].To.Close())
	}
	return errors.Join(errs...)
}
