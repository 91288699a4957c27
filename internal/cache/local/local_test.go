package local_test

import (
	"bytes"
	"encoding/binary"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/tensortest"
	"github.com/tutti-server/tutti/internal/cache"
	"github.com/tutti-server/tutti/internal/cache/local"
)

func fill(t *testing.T, a tensor.Allocator, b byte, n int) []tensor.Tensor {
	t.Helper()
	x, err := tensor.New(a, tensor.Uint8, tensor.Of(int64(n)))
	if err != nil {
		t.Fatal(err)
	}
	for i := range x.Bytes() {
		x.Bytes()[i] = b
	}
	return []tensor.Tensor{x, {}} // an output may be absent
}

func keyOf(n int) *cache.Key {
	var k cache.Key
	binary.LittleEndian.PutUint64(k[:], uint64(n))
	return &k
}

func put(t *testing.T, c *local.Cache, a tensor.Allocator, n, size int) {
	t.Helper()
	out := fill(t, a, byte(n), size)
	c.Insert(keyOf(n), out)
	tensor.ReleaseAll(out)
}

// has looks n up and checks the result.
func has(t *testing.T, c *local.Cache, n, size int) bool {
	t.Helper()
	out := make([]tensor.Tensor, 2)
	if !c.Lookup(t.Context(), keyOf(n), out) {
		return false
	}
	defer tensor.ReleaseAll(out)
	if out[1].Present() || len(out[0].Bytes()) != size || out[0].Bytes()[size-1] != byte(n) || out[0].Shape.Dim(0) != int64(size) {
		t.Errorf("entry %d came back as %+v", n, out)
	}
	return true
}

func TestLocal(t *testing.T) {
	t.Parallel()
	a := tensortest.NewChecked(t, nil)
	c := local.New(local.Settings{Size: 8 << 10, Alloc: a})
	for n := range 4 {
		put(t, c, a, n, 1024)
	}
	if !has(t, c, 0, 1024) { // now the most recently used
		t.Error("an entry is gone before the cache is full")
	}
	put(t, c, a, 0, 1024) // already stored
	for n := 4; n < 7; n++ {
		put(t, c, a, n, 1024)
	}
	for n, want := range []bool{true, false, false, true, true, true, true} {
		if got := has(t, c, n, 1024); got != want {
			t.Errorf("entry %d is kept: %v, want %v", n, got, want)
		}
	}
	put(t, c, a, 99, 9<<10)
	if has(t, c, 99, 9<<10) {
		t.Error("an answer larger than the cache is kept")
	}
	if c.Lookup(t.Context(), keyOf(0), make([]tensor.Tensor, 1)) {
		t.Error("an answer of another number of outputs is found")
	}
	got := c.Counts()
	if got.Util <= 0.5 || got.Util > 1 {
		t.Errorf("%v of the cache is used", got.Util)
	}
	got.Util, got.LookupNs, got.InsertNs = 0, 0, 0
	want := got
	want.Entries, want.Lookups, want.Hits, want.Evictions, want.Dropped = 5, 10, 6, 2, 2
	if got != want {
		t.Errorf("counts %+v, want %+v", got, want)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// TestLocalShared checks that concurrent lookups in a small cache return complete responses.
func TestLocalShared(t *testing.T) {
	t.Parallel()
	a := tensortest.NewChecked(t, nil)
	c := local.New(local.Settings{Size: 16 << 10, Alloc: a})
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 500 {
				n := (i*7 + g) % 40
				if !has(t, c, n, 100+n*20) {
					put(t, c, a, n, 100+n*20)
				}
			}
		})
	}
	wg.Wait()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// TestTooLarge checks that a response that is too large is not stored, and that the log says so once, not for each
// response.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	a, said := tensortest.NewChecked(t, nil), &bytes.Buffer{}
	c := local.New(local.Settings{Size: 200, Alloc: a, Log: slog.New(slog.NewTextHandler(said, nil))})
	for n := range 3 {
		if put(t, c, a, n, 1); has(t, c, n, 1) {
			t.Errorf("response %d was kept", n)
		}
	}
	if n := c.Counts(); n.Dropped != 3 || n.Entries != 0 {
		t.Errorf("counts %+v, want 3 dropped", n)
	}
	const want = "Failed to insert key [0000000000000000] into response cache: the entry takes 608 bytes, expected at most 200"
	if text := said.String(); strings.Count(text, "Failed to insert") != 1 || !strings.Contains(text, want) {
		t.Errorf("log has %s, want %s once", text, want)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}
