package exec_test

import (
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/sim"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/simdev"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/scheduler/batch"
)

// site is a simulated device that models of a bench run at.
type site struct {
	tb      testing.TB
	device  *simdev.Device
	mover   *batch.Mover
	mixed   bool
	models  int
	opened  []backends.Instance
	ledgers []*telemetry.Model
}

// newSite starts one. When the test ends nothing may be held there and no rule of
// order may be broken; without models on the host nothing but requests went up and
// nothing but answers came down.
func newSite(tb testing.TB, b *bench, mixed bool) *site {
	tb.Helper()
	m, err := simdev.New(1, simdev.Options{Memory: 64 << 20})
	if err != nil {
		tb.Fatal(err)
	}
	places := tensor.NewPlaces(b.alloc)
	s := &site{tb: tb, device: m.Devices()[0], mover: batch.NewMover(places), mixed: mixed}
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
		if err := m.Close(); err != nil {
			tb.Error(err)
		}
		for _, l := range s.ledgers {
			for _, v := range l.Moves.List() {
				if !mixed && v.Reason != telemetry.ForDevice && v.Reason != telemetry.ForResponse && v.Reason != telemetry.ForCapture {
					tb.Errorf("between steps that are all at one device there are moves: %+v", v)
				}
			}
		}
	})
	return s
}

// decide says whether the next model is at the device.
func (s *site) decide() bool {
	if s == nil {
		return false
	}
	s.models++
	return !s.mixed || s.models%2 != 0
}

// wrap returns the instances at the device.
func (s *site) wrap(b *bench, list []backends.Instance) []backends.Instance {
	var all []backends.Instance
	for _, inst := range list {
		p, err := sim.Wrap(inst, s.device, "model", b.alloc)
		if err != nil {
			panic(err)
		}
		all = append(all, p)
	}
	s.opened = append(s.opened, all...)
	return all
}

// placed returns the instances at the device, or nil when they stay on the host.
func (b *bench) placed(list ...backends.Instance) []backends.Instance {
	if !b.site.decide() {
		return nil
	}
	return b.site.wrap(b, list)
}

func (b *bench) mover() *batch.Mover {
	if b.site == nil {
		return nil
	}
	return b.site.mover
}

func (b *bench) stats(name string) *telemetry.Model {
	m := &telemetry.Model{Name: name}
	if b.site != nil {
		b.site.ledgers = append(b.site.ledgers, m)
	}
	return m
}
