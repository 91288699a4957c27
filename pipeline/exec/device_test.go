package exec_test

import (
	"sync"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/sim"
	"github.com/tutti-server/tutti/backends/sim/simtest"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/scheduler/batch"
)

// testDevice is a device that runs models of a bench.
type testDevice struct {
	tb      testing.TB
	device  tensor.Accelerator
	traffic *sim.Traffic
	mover   *batch.Mover
	mixed   bool

	mu      sync.Mutex // parallel tests share a bench
	models  int
	opened  []backends.Instance
	ledgers []*telemetry.Model
}

// newTestDevice starts a device, as simtest.New says. When the test ends, no buffer may be held and no ordering rule may be violated.
// Unless mixed is set, only requests may have been copied to the device and only responses to the host.
func newTestDevice(tb testing.TB, b *bench, mixed bool) *testDevice {
	tb.Helper()
	m := simtest.New(tb, 1)
	places := tensor.NewPlaces(b.alloc)
	s := &testDevice{tb: tb, device: m.Devices()[0], traffic: m.Traffic(), mover: batch.NewMover(places), mixed: mixed}
	if err := places.Add(s.device); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		for _, inst := range s.opened {
			if err := inst.Close(); err != nil {
				tb.Error(err)
			}
		}
		if err := s.mover.Close(); err != nil {
			tb.Error(err)
		}
		ledger := simtest.Copies{}
		for _, l := range s.ledgers {
			ledger.AddLedger(&l.Copies)
			for _, v := range l.Copies.List() {
				if !mixed && v.Reason != telemetry.ForDevice && v.Reason != telemetry.ForResponse && v.Reason != telemetry.ForCapture && v.Reason != telemetry.ForRows && v.Reason != telemetry.ForState {
					tb.Errorf("between steps that are all at one device there are copies: %+v", v)
				}
			}
		}
		m.Compare(ledger)
	})
	return s
}

// decide reports whether the next model runs on the device.
func (s *testDevice) decide() bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.models++
	return !s.mixed || s.models%2 != 0
}

// wrap returns instances that run on the device.
func (s *testDevice) wrap(b *bench, list []backends.Instance) []backends.Instance {
	var all []backends.Instance
	for _, inst := range list {
		p, err := sim.Wrap(inst, s.device, "model", b.alloc, s.traffic)
		if err != nil {
			panic(err)
		}
		all = append(all, p)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opened = append(s.opened, all...)
	return all
}

// onDevice returns instances on the device, or nil when the model stays on the host.
func (b *bench) onDevice(list ...backends.Instance) []backends.Instance {
	if !b.device.decide() {
		return nil
	}
	return b.device.wrap(b, list)
}

func (b *bench) mover() *batch.Mover {
	if b.device == nil {
		return nil
	}
	return b.device.mover
}

func (b *bench) stats(name string) *telemetry.Model {
	m := &telemetry.Model{Name: name}
	if b.device != nil {
		b.device.mu.Lock()
		defer b.device.mu.Unlock()
		b.device.ledgers = append(b.device.ledgers, m)
	}
	return m
}
