package tensortest

import (
	"bytes"
	"testing"

	"github.com/tutti-server/tutti/core/tensor"
)

// Machine opens devices for RunDevices.
type Machine struct {
	// Open returns n devices of one machine, which can copy to each other and wait for each other's events. memory bounds the
	// memory of each in bytes; 0 for no bound. It registers a cleanup that closes them, and that fails the test on memory or
	// streams that are still held, and on every violation that the machine detects.
	Open func(tb testing.TB, n int, memory int64) []tensor.Accelerator
	// Devices is how many devices there are, at least 1. With more than one, copies between devices are checked.
	Devices int
	// Pinned returns an allocator of pinned memory for a device; nil: there is none.
	Pinned func(tb testing.TB, d tensor.Accelerator) tensor.Allocator
}

// RunDevices checks devices against the contract of tensor.Accelerator, Stream and Event: memory, copies and fills, the order
// within a stream and between streams, what may be released when, bad arguments, exhausted memory, and concurrent use.
func RunDevices(t *testing.T, m Machine) {
	t.Helper()
	t.Run("allocators", func(t *testing.T) {
		t.Parallel()
		t.Run("device", func(t *testing.T) {
			t.Parallel()
			Run(t, func(tb testing.TB) tensor.Allocator { tb.Helper(); return m.Open(tb, 1, 0)[0] })
		})
		t.Run("stream", func(t *testing.T) {
			t.Parallel()
			Run(t, func(tb testing.TB) tensor.Allocator { tb.Helper(); return open(tb, m, 1).stream(0) })
		})
		t.Run("checked", func(t *testing.T) {
			t.Parallel()
			Run(t, func(tb testing.TB) tensor.Allocator {
				tb.Helper()
				k := open(tb, m, 1)
				return NewChecked(tb, k.stream(0))
			})
		})
	})
	for name, check := range map[string]func(*kit){
		"order": checkOrder, "events": checkEvents, "copies": checkCopies, "fills": checkFills, "views": checkViews,
		"zero sizes": checkZero, "release": checkRelease, "stream allocations": checkStreamAlloc, "outlives": checkOutlives,
		"shared copies": checkShared, "closed": checkClosed, "refused": checkRefusedWork, "foreign": checkForeign,
		"exhausted": checkExhausted, "goroutines": checkGoroutines, "ends": checkEnds, "spans": checkSpans,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(open(t, m, 1))
		})
	}
	t.Run("peers", func(t *testing.T) {
		t.Parallel()
		if m.Devices < 2 {
			t.Skip("one device has no peer")
		}
		checkPeers(open(t, m, 2))
	})
	t.Run("pinned", func(t *testing.T) {
		t.Parallel()
		if m.Pinned == nil {
			t.Skip("the machine pins no memory")
		}
		checkPinned(open(t, m, 1))
	})
	runRandom(t, m)
}

// kit is what a check works with.
type kit struct {
	testing.TB
	machine Machine
	devices []tensor.Accelerator
	host    *Checked
}

func open(tb testing.TB, m Machine, n int) *kit {
	tb.Helper()
	return &kit{TB: tb, machine: m, devices: m.Open(tb, n, 0), host: NewChecked(tb, nil)}
}

// stream returns a stream of device i, which is closed when the check ends.
func (k *kit) stream(i int) tensor.Stream {
	k.Helper()
	s, err := k.devices[i].NewStream(k.Name())
	k.must(err)
	k.Cleanup(func() {
		if err := s.Close(); err != nil {
			k.Error(err)
		}
	})
	return s
}

func (k *kit) must(err error) {
	k.Helper()
	if err != nil {
		k.Fatal(err)
	}
}

func (k *kit) alloc(a tensor.Allocator, n int) *tensor.Buffer {
	k.Helper()
	b, err := a.Alloc(n)
	k.must(err)
	return b
}

// bytes returns a host buffer with the content.
func (k *kit) bytes(content []byte) *tensor.Buffer {
	k.Helper()
	b := k.alloc(k.host, len(content))
	copy(b.Bytes(), content)
	return b
}

// up returns a buffer of the stream with the content.
func (k *kit) up(s tensor.Stream, content []byte) *tensor.Buffer {
	k.Helper()
	from := k.bytes(content)
	defer from.Release()
	b := k.alloc(s, len(content))
	k.must(s.Copy(b, 0, from, 0, len(content)))
	b.SetReady(s.Record())
	return b
}

// expect reads a buffer through the stream and compares it.
func (k *kit) expect(s tensor.Stream, b *tensor.Buffer, want []byte) {
	k.Helper()
	to := k.alloc(k.host, b.Len())
	defer to.Release()
	k.must(s.Copy(to, 0, b, 0, b.Len()))
	k.must(s.Record().Wait())
	if !bytes.Equal(to.Bytes(), want) {
		k.Errorf("the device has\n%x, want\n%x", to.Bytes(), want)
	}
}

// wait makes s wait for the content of b.
func (k *kit) wait(s tensor.Stream, b *tensor.Buffer) {
	k.Helper()
	if e := b.Ready(); e != nil {
		k.must(e.WaitOn(s))
	}
}

// pattern returns n bytes that differ from those of other seeds.
func pattern(n, seed int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + seed*31 + i>>8)
	}
	return b
}
