package tensor_test

import (
	"testing"

	"github.com/tutti-server/tutti/core/tensor"
)

// TestShare checks that a pool allocates in shared memory from Share on, and that buffers from before and after it are freed.
func TestShare(t *testing.T) {
	t.Parallel()
	p := tensor.NewPool()
	sizes := []int{1, 5000, 3 << 20, 300 << 20}
	alloc := func() (list []*tensor.Buffer) {
		for _, n := range sizes {
			b, err := p.Alloc(n)
			if err != nil {
				t.Fatal(err)
			}
			b.Bytes()[n-1] = 1
			list = append(list, b)
		}
		return list
	}
	before := alloc()
	m, err := p.Share()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := p.Share(); again != m || err != nil {
		t.Errorf("the second Share = %p, %v, want %p", again, err, m)
	}
	for range 3 {
		after := alloc()
		for i, b := range after {
			if _, ok := m.Offset(b.Pointer()); !ok {
				t.Errorf("%d bytes are not in shared memory", sizes[i])
			}
		}
		for _, b := range after {
			b.Release()
		}
	}
	for i, b := range before {
		if _, ok := m.Offset(b.Pointer()); ok {
			t.Errorf("%d bytes have moved", sizes[i])
		}
		b.Release()
	}
	p.Trim()
	if n := p.InUse(); n != 0 {
		t.Errorf("%d bytes are in use", n)
	}
}

// TestSharedRanges checks that ranges do not overlap, are cleared when they are used again, and end.
func TestSharedRanges(t *testing.T) {
	t.Parallel()
	all, err := tensor.NewSharedMemory()
	if err != nil {
		t.Fatal(err)
	}
	part, err := all.Map(1 << 16)
	if err != nil {
		t.Fatal(err)
	}
	m := tensor.SharedRange(part)
	a, err := m.Map(8192)
	if err != nil {
		t.Fatal(err)
	}
	b, err := m.Map(4096)
	if err != nil {
		t.Fatal(err)
	}
	for i := range a {
		a[i] = 1
	}
	if b[0] != 0 || b[4095] != 0 {
		t.Error("the ranges overlap")
	}
	m.Unmap(a)
	again, err := m.Map(8192)
	if err != nil || &again[0] != &a[0] || again[0] != 0 || again[8191] != 0 {
		t.Errorf("the range is not used again, or not cleared: %v", err)
	}
	if big, err := m.Map(1 << 16); err == nil {
		t.Errorf("%d bytes of a full range", len(big))
	}
}
