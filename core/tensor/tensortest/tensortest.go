// Package tensortest is the contract of tensor.Allocator as a test suite: every allocator calls Run from its own tests.
package tensortest

import (
	"bytes"
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/tutti-server/tutti/core/tensor"
)

// alignment is what every buffer's address is a multiple of.
const alignment = 64

// sizes are those around the edges of size classes, pages and what has a mapping of its own.
var sizes = []int{
	0, 1, 63, 64, 65, 127, 128, 129, 4095, 4096, 4097,
	1<<19 + 1, 1<<20 - 1, 1 << 20, 1<<20 + 1, 1<<20 + 4096, 2 << 20,
}

// Run checks the allocators that open returns, a new one for each check: sizes, alignment, that live buffers do not
// overlap, that a buffer lives as long as its last reference, that broken ownership panics, and concurrent use. An
// allocator with a method InUse, in bytes, must come back to where it was.
func Run(t *testing.T, open func(tb testing.TB) tensor.Allocator) {
	t.Helper()
	checks := map[string]func(*testing.T, tensor.Allocator){
		"sizes": checkSizes, "refused": checkRefused, "references": checkReferences,
		"broken ownership": checkBroken, "concurrent": checkConcurrent,
	}
	for name, check := range checks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := open(t)
			counted, ok := a.(interface{ InUse() int64 })
			check(t, a)
			if ok && counted.InUse() != 0 {
				t.Errorf("%d bytes are in use after the last release", counted.InUse())
			}
		})
	}
}

// alloc returns a buffer whose every byte is mark.
func alloc(tb testing.TB, a tensor.Allocator, n int, mark byte) *tensor.Buffer {
	tb.Helper()
	b, err := a.Alloc(n)
	if err != nil {
		tb.Errorf("Alloc(%d): %v", n, err) // not Fatalf: goroutines call this too
		return nil
	}
	switch {
	case b.Len() != n:
		tb.Errorf("Alloc(%d) has %d bytes", n, b.Len())
	case b.Place() != a.Place():
		tb.Errorf("Alloc(%d) is at %s, the allocator at %s", n, b.Place(), a.Place())
	case uintptr(b.Pointer())%alignment != 0:
		tb.Errorf("Alloc(%d) is at %p, which is not a multiple of %d", n, b.Pointer(), alignment)
	}
	if onHost(b) {
		copy(b.Bytes(), bytes.Repeat([]byte{mark}, n))
	}
	return b
}

func onHost(b *tensor.Buffer) bool { return b.Place().Kind != tensor.Device }

// intact fails when b is not filled with mark any more.
func intact(tb testing.TB, b *tensor.Buffer, mark byte) {
	tb.Helper()
	if onHost(b) && bytes.Count(b.Bytes(), []byte{mark}) != b.Len() {
		tb.Errorf("a buffer of %d bytes was overwritten while it was held", b.Len())
	}
}

// checkSizes holds two buffers of every size at once, and then takes their memory again.
func checkSizes(t *testing.T, a tensor.Allocator) {
	t.Helper()
	for range 2 {
		var held []*tensor.Buffer
		for i, n := range append(sizes, sizes...) {
			b := alloc(t, a, n, byte(i))
			if b == nil {
				return
			}
			held = append(held, b)
		}
		for i, b := range held {
			intact(t, b, byte(i))
			b.Release()
		}
	}
}

func checkRefused(t *testing.T, a tensor.Allocator) {
	t.Helper()
	for _, n := range []int{-1, math.MinInt, 1 << 62, math.MaxInt} {
		if b, err := a.Alloc(n); err == nil {
			t.Errorf("Alloc(%d) gave %d bytes, want an error", n, b.Len())
			b.Release()
		}
	}
}

func checkReferences(t *testing.T, a tensor.Allocator) {
	t.Helper()
	for _, n := range []int{8, 2 << 20} {
		b := alloc(t, a, n, 1)
		if again := b.Retain(); again != b {
			t.Errorf("Retain returned %p of %p", again, b)
		}
		b.Release()
		other := alloc(t, a, n, 2) // would take b's memory if that were free
		intact(t, b, 1)
		other.Release()
		b.Release()
	}
}

// checkBroken breaks the rules more than once, because a panic that somebody recovers from must leave nothing behind:
// memory that is freed twice would have two holders afterwards.
func checkBroken(t *testing.T, a tensor.Allocator) {
	t.Helper()
	for name, broken := range map[string]func(*tensor.Buffer){
		"release": (*tensor.Buffer).Release,
		"retain":  func(b *tensor.Buffer) { b.Retain() },
	} {
		b := alloc(t, a, 100, 1)
		b.Release()
		for range 2 {
			if !panics(func() { broken(b) }) {
				t.Errorf("%s after the last release does not panic", name)
			}
		}
		if !panics(b.Release) {
			t.Errorf("release after a %s that panicked does not panic", name)
		}
		x, y := alloc(t, a, 100, 2), alloc(t, a, 100, 3)
		if x.Pointer() == y.Pointer() {
			t.Errorf("after a broken %s two buffers have the same memory", name)
		}
		x.Release()
		y.Release()
	}
}

func panics(f func()) (yes bool) {
	defer func() { yes = recover() != nil }()
	f()
	return false
}

// checkConcurrent has buffers made by some goroutines, held by two at once and freed by whichever is last.
func checkConcurrent(t *testing.T, a tensor.Allocator) {
	t.Helper()
	const makers, rounds = 4, 200
	type parcel struct {
		b    *tensor.Buffer
		mark byte
	}
	mail := make(chan parcel, makers)
	var sent, received sync.WaitGroup
	for m := range makers {
		rng := rand.New(rand.NewPCG(uint64(m), 0))
		sent.Go(func() {
			for i := range rounds {
				n := rng.IntN(300)
				if i%50 == 0 {
					n = 1<<20 + rng.IntN(3)*4096
				}
				p := parcel{b: alloc(t, a, n, byte(m*rounds+i)), mark: byte(m*rounds + i)}
				if p.b == nil {
					return
				}
				p.b.Retain()
				mail <- p
				intact(t, p.b, p.mark)
				p.b.Release()
			}
		})
		received.Go(func() {
			for p := range mail {
				intact(t, p.b, p.mark)
				p.b.Release()
			}
		})
	}
	sent.Wait()
	close(mail)
	received.Wait()
}
