package repository

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/telemetry"
)

// memory makes room at devices: when a model does not fit, it evicts those that have been idle longest (Settings.EvictIdle).
//
// Loads at a device run concurrently while they fit. One that does not fit closes what it has opened, waits until it is the only load at
// its devices, and then evicts one model after another until it fits. So two loads never hold a part of a device each and wait for the
// other's.
type memory struct {
	r *Repository

	mu    sync.Mutex
	loads map[tensor.Place]*semaphore.Weighted // guarded by mu
	list  []*residency                         // models whose load has succeeded, until they are closed; guarded by mu
}

const (
	defaultResidence = time.Second
	evictWait        = 30 * time.Second     // for a model that may be evicted
	drainWait        = 10 * time.Second     // for the requests in flight of a busy model, and of a paused ensemble
	evictPoll        = 5 * time.Millisecond // between two looks for a model to evict
	allLoads         = 1 << 20              // the weight of the only load at a device
)

// noRoomError is the failure of a load for which a device has too little memory.
type noRoomError struct {
	at    []tensor.Place // at least one of them is full
	limit bool           // Settings.Room says so
	err   error
}

func (e *noRoomError) Error() string { return e.err.Error() }
func (e *noRoomError) Unwrap() error { return e.err }

// outOfMemory are the words of drivers and runtimes for too little memory at a device.
var outOfMemory = []string{"out of memory", "out_of_memory", "outofmemory", "failed to allocate memory", "bytes are in use", "no memory for"}

// noRoomAt returns a failure at devices as a noRoomError if it says that they are out of memory, else as it is.
func noRoomAt(err error, at ...tensor.Place) error {
	if _, ok := errors.AsType[*noRoomError](err); ok || err == nil || len(at) == 0 {
		return err
	}
	text := strings.ToLower(err.Error())
	if slices.ContainsFunc(outOfMemory, func(words string) bool { return strings.Contains(text, words) }) {
		return &noRoomError{at: at, err: err}
	}
	return err
}

// fittingKey is the context key of a load that has the locks of its devices.
type fittingKey struct{}

// fitting is a load for which room is made.
type fitting struct {
	m    *memory
	key  string         // of the model
	at   []tensor.Place // the devices that it locks
	load func(context.Context) error
	full *noRoomError // the failure of the last try, nil after room was made
	busy []string     // why models were not evicted
	// paused are ensembles whose requests wait until the load has ended, or until the time pauseEnd.
	paused   []*version
	pauseEnd int64
}

// fit calls load for a model with instances at the places, and makes room at them as needed. key is the model's: ensembles with it do not
// keep it from taking the place of their other models. A load from within a load shares its locks.
func (m *memory) fit(ctx context.Context, key string, places []tensor.Place, load func(context.Context) error) error {
	known := onDevices(places)
	f := &fitting{m: m, key: key, at: known}
	if len(known) == 0 { // an open model may have more places than its configuration says
		f.at = m.r.places.Devices()
	}
	f.load = func(ctx context.Context) error {
		if err := m.full(key, known); err != nil {
			return err
		}
		return noRoomAt(load(ctx), known...)
	}
	together, alone := int64(1), int64(allLoads)
	if ctx.Value(fittingKey{}) != nil {
		together, alone = 0, 0
	}
	defer f.resume()
	ctx = context.WithValue(ctx, fittingKey{}, key)
	unlock, err := m.lock(ctx, f.at, together)
	if err != nil {
		return err
	}
	err = f.load(ctx)
	unlock()
	full, ok := errors.AsType[*noRoomError](err)
	if !ok {
		return err
	}
	m.relieve(full.at) // memory that is kept for reuse may be enough
	return f.wait(ctx, alone)
}

// wait tries the load as the only one at its devices, until it fits or nothing can be evicted for evictWait. Between two tries the
// devices are free for others: what keeps models in use may itself wait for a load.
func (f *fitting) wait(ctx context.Context, weight int64) error {
	limit := time.NewTimer(evictWait)
	defer limit.Stop()
	for {
		unlock, err := f.m.lock(ctx, f.at, weight)
		if err != nil {
			return err
		}
		ended, err := f.try(ctx)
		unlock()
		if ended {
			return err
		}
		select {
		case <-ctx.Done():
			return status.ErrCancelled
		case <-limit.C:
			return status.Reasonf(status.MemoryLimit, "%w; no model there could be evicted: %s", f.full, strings.Join(f.busy, ", "))
		case <-time.After(evictPoll):
		}
	}
}

// try loads the model, after it has evicted as many others as needed. It returns false if they are all in use.
func (f *fitting) try(ctx context.Context) (ended bool, err error) {
	for {
		if f.full == nil || f.full.limit && f.m.full(f.key, f.full.at) == nil {
			err := f.load(ctx)
			var ok bool
			if f.full, ok = errors.AsType[*noRoomError](err); !ok {
				return true, err
			}
		}
		switch {
		case f.evict(ctx):
			f.m.relieve(f.full.at)
			f.full = nil
		case len(f.busy) == 0:
			return true, status.Reasonf(status.MemoryLimit, "%w; no other model is there that could be evicted", f.full)
		default:
			return false, nil
		}
	}
}

// evict evicts one model, and reports whether it did.
func (f *fitting) evict(ctx context.Context) bool {
	for _, c := range f.candidates() {
		if c.evict(ctx, f.key, f.full.at) {
			return true
		}
	}
	if f.pauseEnd > 0 && telemetry.Now() > f.pauseEnd {
		f.resume()
	}
	return false
}

// pause keeps new requests of the ensembles back that use a model, so that those in flight end and the model is in use no longer.
func (f *fitting) pause(x *residency) {
	if f.pauseEnd == 0 {
		f.pauseEnd = telemetry.Now() + int64(drainWait)
	}
	if telemetry.Now() > f.pauseEnd {
		return // once is enough
	}
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	for _, e := range x.ensembles {
		if e.held == nil && e.exec.Busy() {
			e.held = f
			e.exec.Hold()
			f.paused = append(f.paused, e)
		}
	}
}

func (f *fitting) resume() {
	f.m.mu.Lock()
	list := f.paused
	f.paused = nil
	for _, e := range list {
		e.held = nil
	}
	f.m.mu.Unlock()
	for _, e := range list {
		e.exec.Unhold()
	}
}

// onDevices returns the places at devices, ascending.
func onDevices(places []tensor.Place) []tensor.Place {
	at := slices.DeleteFunc(slices.Clone(places), func(p tensor.Place) bool { return p.Kind != tensor.Device })
	slices.SortFunc(at, func(a, b tensor.Place) int { return cmp.Compare(a.ID, b.ID) })
	return slices.Compact(at)
}

// lock waits until one more load, or with weight allLoads the only one, may run at the devices.
func (m *memory) lock(ctx context.Context, at []tensor.Place, weight int64) (unlock func(), err error) {
	var held []*semaphore.Weighted
	unlock = func() {
		for _, s := range held {
			s.Release(weight)
		}
	}
	for _, p := range at { // ascending, so that two loads never wait for each other
		m.mu.Lock()
		s := m.loads[p]
		if s == nil {
			s = semaphore.NewWeighted(allLoads)
			m.loads[p] = s
		}
		m.mu.Unlock()
		if err := s.Acquire(ctx, weight); err != nil {
			unlock()
			return nil, status.ErrCancelled
		}
		held = append(held, s)
	}
	return unlock, nil
}

// full returns the failure of Settings.Room at the first full device, or nil.
func (m *memory) full(key string, at []tensor.Place) error {
	for _, p := range at {
		if err := m.r.room(nameOf(key), p); err != nil {
			return err
		}
	}
	return nil
}

// room returns why no instance of a model can be made at a place, or nil.
func (r *Repository) room(model string, at tensor.Place) error {
	if r.s.Room == nil || at.Kind != tensor.Device {
		return nil
	}
	if err := r.s.Room(at); err != nil {
		return &noRoomError{at: []tensor.Place{at}, limit: true, err: status.Prefixf(err, "no instance of model '%s' can be made: ", model)}
	}
	return nil
}

// relieve gives memory back to the devices that pools and runtimes keep for reuse.
func (m *memory) relieve(at []tensor.Place) {
	for _, p := range at {
		if d, ok := m.r.places.Device(p).(interface{ Relieve() error }); ok {
			if err := d.Relieve(); err != nil {
				m.r.s.Log.Warn("memory that is kept for reuse cannot be given back: " + err.Error()) //nolint:sloglint // the text names the device
			}
		}
	}
}

// candidate is a model that may be evicted: idle, or loaded for its minimum residence and for as long as its load took. Models that are
// always busy take turns so, and no more than half of the time goes into loads.
type candidate struct {
	*residency
	idle bool
	used int64 // when it was last used, on the clock of telemetry.Now
}

// candidates returns the models at the full devices that may be evicted: first the idle ones, the one that has been idle longest first,
// then the busy ones that have been loaded longest. It notes the reasons of those that may not.
func (f *fitting) candidates() (list []candidate) {
	f.m.mu.Lock()
	all := slices.Clone(f.m.list)
	f.m.mu.Unlock()
	f.busy = nil
	for _, x := range all {
		s := x.state.Load()
		if !s.loaded || !slices.ContainsFunc(x.places, func(p tensor.Place) bool { return slices.Contains(f.full.at, p) }) {
			continue
		}
		if slices.ContainsFunc(x.places, func(p tensor.Place) bool { return f.m.r.places.Lost(p) != nil }) {
			continue // it could not be loaded again
		}
		stayed := telemetry.Now()-s.at >= max(int64(cmp.Or(f.m.r.s.Residence, defaultResidence)), x.v.stats.LoadNs.Load())
		if by := f.m.pinnedBy(x, f.key); by != "" {
			f.busy = append(f.busy, fmt.Sprintf("'%s' is used by requests of ensemble '%s'", x.v.sig.Model, by))
			if stayed {
				f.pause(x)
			}
			continue
		}
		f.busy = append(f.busy, fmt.Sprintf("'%s' has requests in flight", x.v.sig.Model))
		if c := (candidate{residency: x, idle: !x.busy(), used: x.gate.Used()}); c.idle || stayed {
			list = append(list, c)
		}
	}
	slices.SortStableFunc(list, func(a, b candidate) int {
		switch {
		case a.idle != b.idle && a.idle:
			return -1
		case a.idle != b.idle:
			return 1
		case a.idle:
			return cmp.Compare(a.used, b.used)
		}
		return cmp.Compare(a.state.Load().at, b.state.Load().at)
	})
	return list
}

// pinnedBy returns the name of an ensemble with requests in flight that uses the model, "" for none. One that also uses the model with
// the key does not count: its requests need that model's place.
func (m *memory) pinnedBy(x *residency, key string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range x.ensembles {
		if e.exec.Busy() && !slices.ContainsFunc(e.uses, func(used *version) bool { return used.key == key }) {
			return e.sig.Model
		}
	}
	return ""
}

// add makes a loaded model evictable.
func (m *memory) add(x *residency) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.list = append(m.list, x)
}

func (m *memory) remove(x *residency) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.list = slices.DeleteFunc(m.list, func(y *residency) bool { return x == y })
}

// pin notes that the requests of an ensemble use the model, which stays while one is in flight; unpin ends it. x may be nil.
func (x *residency) pin(e *version) {
	if x == nil {
		return
	}
	x.r.memory.mu.Lock()
	defer x.r.memory.mu.Unlock()
	x.ensembles = append(x.ensembles, e)
}

func (x *residency) unpin(e *version) {
	if x == nil {
		return
	}
	x.r.memory.mu.Lock()
	defer x.r.memory.mu.Unlock()
	x.ensembles = slices.DeleteFunc(x.ensembles, func(y *version) bool { return y == e })
}
