package cuda_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/cuda/cudatest"
)

// TestElapsedTime checks the results of cuEventElapsedTime that CUDA documents. An event without timing is a mistake.
func TestElapsedTime(t *testing.T) {
	t.Parallel()
	out, err := child(t, "elapsed", "TUTTI_CUDA_CHECK_LATE_US=100000000")
	if want := "{Never:400 Late:600 Untimed:400 Reached:0 Ms:0} 1 true"; err != nil || !strings.Contains(out, want) {
		t.Errorf("%v, want %s:\n%s", err, want, out)
	}
}

// TestSpanCoversWork measures copies of which the driver lets each take 2 ms.
func TestSpanCoversWork(t *testing.T) { //nolint:paralleltest // changes the driver, and reads its account
	d := open(t, 1)[0]
	s := stream(t, d, "s")
	x := alloc(t, s, 64)
	defer x.Release()
	cudatest.Set(t, "work_us", 2000)
	defer cudatest.Set(t, "work_us", 0)
	from := alloc(t, tensor.NewPool(), 64)
	defer from.Release()
	before := cudatest.Count(t).BusyNs
	p, err := s.Span()
	must(t, err)
	defer p.Release()
	for _, copies := range []int{0, 1, 3, 0} {
		for range copies {
			must(t, s.Copy(x, 0, from, 0, 64))
		}
		must(t, p.Mark(false))
	}
	if _, ok, err := p.Laps(true); ok || err != nil {
		t.Errorf("laps before the device has begun: %v, %v", ok, err)
	}
	must(t, p.Wait())
	ns, ok, err := p.Laps(true)
	if busy := cudatest.Count(t).BusyNs - before; err != nil || !ok || busy != 8e6 || ns[0] < 2e6 || ns[1] < 6e6 || ns[2] != 0 {
		t.Errorf("the device was busy for %d ns: laps of %v, %v, %v", busy, ns, ok, err)
	}
	at, within, err := p.Start()
	if end := at.Add(time.Duration(ns[0] + ns[1])); err != nil || end.After(time.Now().Add(within)) {
		t.Errorf("the work ended at %v, within %s: %v", end, within, err)
	}
}

// TestSpanMarksStream checks that a stream that waits for measured work needs no other event, and that released spans are used again.
func TestSpanMarksStream(t *testing.T) { //nolint:paralleltest // counts the events of the process
	cudatest.Require(t)
	d := open(t, 1)[0]
	s, other := stream(t, d, "s"), stream(t, d, "other")
	x := alloc(t, d, 64)
	defer x.Release()
	before := cudatest.Count(t).Events
	for range 50 {
		p, err := s.Span()
		must(t, err)
		must(t, p.Mark(false))
		must(t, s.Fill(x, 0, 64, nil))
		must(t, p.Mark(true))
		must(t, s.Record().WaitOn(other))
		must(t, other.Fill(x, 0, 64, nil))
		must(t, p.Wait())
		p.Release()
		must(t, other.Record().Wait())
		must(t, other.Record().WaitOn(s))
	}
	if n := cudatest.Count(t).Events - before; n > 3 { // two of the span, one of the other stream
		t.Errorf("%d events for work that was measured one after the other, want 3", n)
	}
}
