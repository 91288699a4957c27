package spread_test

import (
	"context"
	"testing"

	"tutti/core/tensor"
	"tutti/core/tensor/simdev"
	"tutti/scheduler"
	"tutti/scheduler/spread"
)

// shelf is a scheduler that keeps what it gets.
type shelf struct{ works, calls int }

func (s *shelf) Enqueue(list scheduler.List, _ *scheduler.Turn) {
	s.works += list.Len()
	s.calls++
}
func (*shelf) Help(*scheduler.Turn) bool   { return false }
func (s *shelf) InFlight() int64           { return int64(s.works) }
func (*shelf) Drain(context.Context) error { return nil }
func (*shelf) Close() error                { return nil }
func (s *shelf) Load() int64               { return int64(s.works) }

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
			var sites []spread.Site
			for i, at := range []tensor.Place{{}, simdev.Place(0), simdev.Place(1)} {
				shelves[i] = &shelf{works: tc.load[i]}
				sites = append(sites, spread.Site{At: at, To: shelves[i]})
			}
			var affinity scheduler.Affinity
			affinity.Reset(tc.allowed)
			if tc.bound >= 0 {
				affinity.Bind(simdev.Place(tc.bound))
			}
			var list scheduler.List
			for range 2 { // two steps of one request stay together
				list.Push(&scheduler.Work{Affinity: &affinity, Want: tc.want})
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
	if got := spread.New([]spread.Site{{To: s}}); got != scheduler.Scheduler(s) {
		t.Error("one site has something in front of it")
	}
}
