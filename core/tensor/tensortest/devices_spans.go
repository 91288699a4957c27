package tensortest

import (
	"time"

	"github.com/tutti-server/tutti/core/tensor"
)

// checkSpans measures work where the streams are tensor.Timer: the marks are in order, a mark without work is free, and what was measured
// can be read after the stream is closed.
func checkSpans(k *kit) {
	k.Helper()
	s, err := k.devices[0].NewStream(k.Name())
	k.must(err)
	timer, ok := s.(tensor.Timer)
	if !ok {
		k.must(s.Close())
		k.Skip("the device measures no times")
	}
	before := time.Now()
	x := k.alloc(s, 1<<20)
	first := k.span(timer, func() {
		for range 20 {
			k.must(s.Fill(x, 0, 1<<20, nil))
		}
	})
	k.must(first.Wait())
	ns, ok, err := first.Laps(true)
	if wall := time.Since(before); err != nil || !ok || ns[0] != 0 || ns[1] <= 0 || ns[2] != 0 || time.Duration(ns[1]) > wall+time.Microsecond {
		k.Errorf("work that took less than %s: laps of %v, %v, %v", wall, ns, ok, err)
	}
	at, within, err := first.Start()
	if err != nil || at.Before(before.Add(-within)) || at.After(time.Now().Add(within)) {
		k.Errorf("a start at %v (within %s, %v), before the work at %v", at, within, err, before)
	}
	second := k.span(timer, func() { k.must(s.Fill(x, 0, 64, nil)) })
	k.must(second.Wait())
	if next, within2, err := second.Start(); err != nil || next.Before(at.Add(time.Duration(ns[1])-within-within2)) {
		k.Errorf("a stream is in order, but started %v (%v) after %v and %d ns", next, err, at, ns[1])
	}
	second.Release()
	x.Release()
	k.must(s.Close())
	if again, ok, err := first.Laps(true); err != nil || !ok || again != ns {
		k.Errorf("after the stream is closed: laps of %v, %v, %v, before %v", again, ok, err, ns)
	}
	if _, err := timer.Span(); err == nil {
		k.Error("a closed stream measures")
	}
	first.Release()
}

// span measures work between its own marks; the marks around those are without work. One mark more is refused.
func (k *kit) span(timer tensor.Timer, work func()) tensor.Span {
	k.Helper()
	p, err := timer.Span()
	k.must(err)
	k.must(p.Mark(false))
	k.must(p.Mark(false))
	work()
	k.must(p.Mark(true))
	k.must(p.Mark(false))
	if p.Mark(false) == nil {
		k.Error("a span has more marks than Laps and one")
	}
	return p
}
