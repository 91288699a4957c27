package spread_test

import (
	"context"
	"slices"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/simdev"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/spread"
)

// shelf is a scheduler that counts its tasks and executes none.
type shelf struct{ works, calls int }

func (s *shelf) Enqueue(list scheduler.TaskList, _ *scheduler.RunLoop) {
	s.works += list.Len()
	s.calls++
}
func (*shelf) Help(*scheduler.RunLoop) bool { return false }
func (s *shelf) InFlight() int64            { return int64(s.works) }
func (*shelf) Drain(context.Context) error  { return nil }
func (*shelf) Close() error                 { return nil }
func (s *shelf) Load() int64                { return int64(s.works) }

func TestEnqueue(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		want    scheduler.Want
		bound   int    // the device that the request is bound to, or -1
		allowed uint64 // bits of the devices it may be bound to
		load    [3]int // before, of the host and the two devices
		to      int
		after   int // the device it is bound to afterwards, or -1
	}{
		{"least of all", scheduler.Anywhere, -1, 0, [3]int{2, 1, 0}, 2, 1},
		{"least is the host", scheduler.Anywhere, -1, 0, [3]int{0, 1, 1}, 0, -1},
		{"at a device", scheduler.AtDevice, -1, 0, [3]int{0, 1, 2}, 1, 0},
		{"at the host", scheduler.AtHost, 1, 0, [3]int{9, 0, 0}, 0, 1},
		{"bound", scheduler.AtDevice, 1, 0, [3]int{0, 0, 9}, 2, 1},
		{"where all steps can be", scheduler.AtDevice, -1, 2, [3]int{0, 0, 9}, 2, 1},
		{"bound to a device without instances", scheduler.AtDevice, 7, 0, [3]int{0, 3, 2}, 2, 7},
		{"no device where all steps can be", scheduler.AtDevice, -1, 1 << 5, [3]int{0, 3, 2}, 2, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var shelves [3]*shelf
			var sites []spread.Placed
			for i, at := range []tensor.Place{{}, simdev.Place(0), simdev.Place(1)} {
				shelves[i] = &shelf{works: tc.load[i]}
				sites = append(sites, spread.Placed{At: at, To: shelves[i]})
			}
			var affinity scheduler.Affinity
			affinity.Reset(tc.allowed)
			if tc.bound >= 0 {
				affinity.Bind(simdev.Place(tc.bound))
			}
			var list scheduler.TaskList
			for range 2 { // two steps of one request stay together
				list.Push(&scheduler.Task{TaskRequest: scheduler.TaskRequest{Affinity: &affinity, Want: tc.want}})
			}
			spread.New(sites).Enqueue(list, nil)
			for i, s := range shelves {
				if want := tc.load[i]; i == tc.to && (s.works != want+2 || s.calls != 1) || i != tc.to && s.works != want {
					t.Errorf("site %d has %d works of %d calls", i, s.works, s.calls)
				}
			}
			at, bound := affinity.Bound()
			if bound != (tc.after >= 0) || bound && at != simdev.Place(tc.after) {
				t.Errorf("bound to %s, %t", at, bound)
			}
		})
	}
}

func TestOneSite(t *testing.T) {
	t.Parallel()
	s := &shelf{}
	if got := spread.New([]spread.Placed{{To: s}}); got != scheduler.Scheduler(s) {
		t.Error("one site has something in front of it")
	}
}

// room is a shelf whose instances change.
type room struct {
	shelf
	list     []backends.Instance
	limiters int
}

func (r *room) Add(list []backends.Instance, limiters []scheduler.Limiter) {
	r.list = append(r.list, list...)
	r.limiters += len(limiters)
}

func (r *room) Remove(inst backends.Instance, gone func()) {
	r.list = slices.DeleteFunc(r.list, func(x backends.Instance) bool { return x == inst })
	gone()
}

// placed is an instance at a device.
type placed struct{ stream tensor.Stream }

func (*placed) Execute(context.Context, *backends.Batch) error { return nil }
func (*placed) Close() error                                   { return nil }
func (p *placed) Stream() tensor.Stream                        { return p.stream }

// plain is an instance on the host.
type plain struct{ placed }

// TestResize checks that instances are added to, and removed from, the scheduler of their place.
func TestResize(t *testing.T) {
	t.Parallel()
	m, err := simdev.New(1, simdev.Options{Memory: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	stream, err := m.Devices()[0].NewStream("test")
	if err != nil {
		t.Fatal(err)
	}
	host, device := &room{}, &room{}
	s, ok := spread.New([]spread.Placed{{To: host}, {At: simdev.Place(0), To: device}}).(scheduler.Resizable)
	if !ok {
		t.Fatal("its instances cannot change")
	}
	a, b := &plain{}, &placed{stream}
	s.Add([]backends.Instance{a, b}, nil)
	s.Add([]backends.Instance{b}, make([]scheduler.Limiter, 1))
	if !slices.Equal(host.list, []backends.Instance{a}) || !slices.Equal(device.list, []backends.Instance{b, b}) || host.limiters != 0 || device.limiters != 1 {
		t.Errorf("%d instances on the host, %d at the device, %d and %d limiters", len(host.list), len(device.list), host.limiters, device.limiters)
	}
	gone := 0
	s.Remove(b, func() { gone++ })
	if len(device.list) != 0 || len(host.list) != 1 || gone != 1 {
		t.Errorf("%d instances on the host, %d at the device, %d gone", len(host.list), len(device.list), gone)
	}
	if err := stream.Close(); err != nil {
		t.Error(err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
}
