package tensor_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/tensortest"
)

func TestPool(t *testing.T) {
	t.Parallel()
	tensortest.Run(t, func(testing.TB) tensor.Allocator { return tensor.NewPool() })
}

func TestChecked(t *testing.T) {
	t.Parallel()
	tensortest.Run(t, func(tb testing.TB) tensor.Allocator {
		tb.Helper()
		return tensortest.NewChecked(tb, nil)
	})
}

// TestPoolInUse checks the cost of a size: its size class, or the pages of its mapping.
func TestPoolInUse(t *testing.T) {
	t.Parallel()
	tests := []struct{ size, want int }{
		{0, 64},
		{1, 64},
		{64, 64},
		{65, 128},
		{128, 128},
		{129, 256},
		{1<<19 + 1, 1 << 20},
		{1 << 20, 1 << 20},
		{1<<20 + 1, 1<<20 + 4096},
		{1<<20 + 4096, 1<<20 + 4096},
	}
	p := tensor.NewPool()
	for _, tt := range tests {
		b := alloc(t, p, tt.size)
		if got := p.InUse(); got != int64(tt.want) {
			t.Errorf("%d bytes take %d, want %d", tt.size, got, tt.want)
		}
		b.Release()
		if got := p.InUse(); got != 0 {
			t.Errorf("%d bytes leave %d in use", tt.size, got)
		}
	}
}

func alloc(tb testing.TB, a tensor.Allocator, n int) *tensor.Buffer {
	tb.Helper()
	b, err := a.Alloc(n)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

const mib = 1 << 20

func TestPoolReuse(t *testing.T) {
	t.Parallel()
	tests := []struct {
		free, want int
		reused     bool
	}{
		{100, 128, true}, // same size class
		{100, 129, false},
		{mib, mib/2 + 1, true},
		{2 * mib, 2 * mib, true},
		{2 * mib, 2*mib - 1, true}, // same number of pages
		{3 * mib, 2 * mib, true},   // up to a third fewer bytes
		{3 * mib, 2*mib - 4096, false},
		{2 * mib, 2*mib + 4096, false},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%d after %d", tt.want, tt.free), func(t *testing.T) {
			t.Parallel()
			p := tensor.NewPool()
			b := alloc(t, p, tt.free)
			first := b.Pointer()
			b.Release()
			again := alloc(t, p, tt.want)
			defer again.Release()
			if got := again.Pointer() == first; got != tt.reused {
				t.Errorf("memory reused: %v, want %v", got, tt.reused)
			}
		})
	}
}

// TestPoolKeeps frees large buffers one by one and checks which mappings are retained.
func TestPoolKeeps(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		sizes   []int
		n, kept int
	}{
		{"up to the bound", []int{128 * mib, 128 * mib}, 2, 256 * mib},
		{"the newest", []int{96 * mib, 80 * mib, 64 * mib, 96 * mib}, 3, 240 * mib},
		{"what makes room for the newest", []int{2 * mib, 2 * mib, 256 * mib}, 1, 256 * mib},
		{"nothing beyond the bound", []int{2 * mib, 256*mib + 1}, 1, 2 * mib},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := tensor.NewPool()
			var held []*tensor.Buffer
			for _, n := range tt.sizes {
				held = append(held, alloc(t, p, n))
			}
			for _, b := range held {
				b.Release()
			}
			if n, kept := p.KeptMappings(); n != tt.n || kept != tt.kept {
				t.Errorf("%d mappings of %d bytes are kept, want %d of %d", n, kept, tt.n, tt.kept)
			}
			if got := p.InUse(); got != 0 {
				t.Errorf("%d bytes are in use", got)
			}
		})
	}
}

// TestPoolOffersOldest checks which of the mappings that are kept have pages that the system may take: the oldest ones beyond 64 MiB.
func TestPoolOffersOldest(t *testing.T) {
	t.Parallel()
	p := tensor.NewPool()
	var held []*tensor.Buffer
	for range 4 {
		held = append(held, alloc(t, p, 24*mib))
	}
	for _, b := range held {
		b.Release()
	}
	if got, want := p.OfferedMappings(), []bool{true, true, false, false}; !slices.Equal(got, want) {
		t.Errorf("the system may take the pages of %v, want %v", got, want)
	}
	newest := alloc(t, p, 24*mib)
	if newest.Pointer() != held[3].Pointer() {
		t.Error("the newest mapping is not the first one to be used again")
	}
	newest.Release()
	if got, want := p.OfferedMappings(), []bool{true, true, false, false}; !slices.Equal(got, want) {
		t.Errorf("after one was used the system may take the pages of %v, want %v", got, want)
	}
	for i := range held { // all of them
		held[i] = alloc(t, p, 24*mib)
	}
	if n, _ := p.KeptMappings(); n != 0 {
		t.Errorf("%d mappings are kept while all are in use", n)
	}
	for _, b := range held {
		b.Release()
	}
	if got, want := p.OfferedMappings(), []bool{true, true, false, false}; !slices.Equal(got, want) {
		t.Errorf("after all were used the system may take the pages of %v, want %v", got, want)
	}
}

// TestPoolReleasesIdlePages checks that the pages of free buffers of slabs are returned when nothing has used them between two calls, which
// shows in their bytes: they are 0 afterwards, and before what was written last, by the test or by the invariants that overwrite free memory.
func TestPoolReleasesIdlePages(t *testing.T) {
	t.Parallel()
	for _, shared := range []bool{false, true} {
		for _, size := range []int{4 << 10, 64 << 10, 1 << 20} {
			t.Run(fmt.Sprintf("shared %v, %d bytes", shared, size), func(t *testing.T) {
				t.Parallel()
				p := tensor.NewPool()
				if shared {
					if _, err := p.Share(); err != nil {
						t.Fatal(err)
					}
				}
				first, second := alloc(t, p, size), alloc(t, p, size)
				first.Bytes()[0], second.Bytes()[0] = 1, 2
				check := func(when string, kept ...bool) {
					t.Helper()
					second, first = alloc(t, p, size), alloc(t, p, size)
					for i, b := range []*tensor.Buffer{first, second} {
						if got := b.Bytes()[0]; got != 0 != kept[i] {
							t.Errorf("%s: buffer %d has %d, want it to be kept: %v", when, i, got, kept[i])
						}
					}
				}
				free := func() {
					first.Release()
					second.Release() // which is used first from now on
				}
				free()
				p.ReleaseIdle()
				check("both were used", true, true)
				free()
				p.ReleaseIdle()
				alloc(t, p, size).Release()
				p.ReleaseIdle()
				check("one was used", false, true)
				free()
				p.ReleaseIdle()
				p.ReleaseIdle()
				p.ReleaseIdle()
				check("none was used", false, false)
				free()
				if mapped, used := p.Usage(); used != 0 || mapped == 0 {
					t.Errorf("%d bytes are mapped and %d in use", mapped, used)
				}
			})
		}
	}
}

// TestPoolReleasesIdle checks that memory kept for reuse is unmapped when nothing has used it between two calls.
func TestPoolReleasesIdle(t *testing.T) {
	t.Parallel()
	p := tensor.NewPool()
	use := func(sizes ...int) {
		var held []*tensor.Buffer
		for _, n := range sizes {
			held = append(held, alloc(t, p, n))
		}
		for _, b := range held {
			b.Release()
		}
	}
	check := func(when string, mappings, bytes int) {
		t.Helper()
		n, kept := p.KeptMappings()
		if mapped, _ := p.Usage(); n != mappings || kept != bytes || mapped != int64(bytes) {
			t.Errorf("%s: %d mappings of %d bytes are kept, %d bytes are mapped, want %d of %d", when, n, kept, mapped, mappings, bytes)
		}
	}
	use(2*mib, 4*mib, 7*mib, 11*mib)
	p.ReleaseIdle()
	check("all were used", 4, 24*mib)
	use(3*mib, 16*mib) // in that of 4 MiB
	p.ReleaseIdle()
	check("two were used", 2, 20*mib)
	use(200*mib, 100*mib) // the bound drops the oldest ones
	p.ReleaseIdle()
	check("beyond the bound", 1, 100*mib)
	p.ReleaseIdle()
	check("none was used", 0, 0)
	use(2 * mib)
	p.Trim()
	p.ReleaseIdle()
	check("after Trim", 0, 0)
}
