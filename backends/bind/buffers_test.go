package bind_test

import (
	"slices"
	"sync"
	"testing"
	"unsafe"

	"github.com/tutti-server/tutti/backends/bind"
	"github.com/tutti-server/tutti/core/tensor"
)

// TestBuffers checks that a wrapped tensor is the runtime's own memory, and that its handle is released exactly
// once, in any order.
func TestBuffers(t *testing.T) {
	t.Parallel()
	var back []int
	handles := make([]byte, 3)
	l := bind.NewBuffers(func(h unsafe.Pointer) {
		back = append(back, int(uintptr(h)-uintptr(unsafe.Pointer(&handles[0]))))
	})
	memory := [3][4]byte{{1}, {2}, {3}}
	var lent []tensor.Tensor
	for i := range memory {
		lent = append(lent, l.Wrap(unsafe.Pointer(&handles[i]), unsafe.Pointer(&memory[i]), 4, tensor.Place{}, tensor.Uint8, tensor.Of(4)))
	}
	for i := range lent {
		if got := lent[i].Bytes(); &got[0] != &memory[i][0] || len(got) != 4 {
			t.Errorf("tensor %d is not the memory that was lent", i)
		}
	}
	for _, i := range []int{1, 0, 2} {
		lent[i].Release()
	}
	if want := []int{1, 0, 2}; !slices.Equal(back, want) {
		t.Errorf("released %v, want %v", back, want)
	}
}

func TestBuffersIsShared(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	held := make(map[unsafe.Pointer]bool)
	l := bind.NewBuffers(func(h unsafe.Pointer) {
		mu.Lock()
		defer mu.Unlock()
		if !held[h] {
			t.Error("released memory that is not lent")
		}
		delete(held, h)
	})
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			for range 200 {
				p := unsafe.Pointer(new([8]byte))
				mu.Lock()
				held[p] = true
				mu.Unlock()
				x := l.Wrap(p, p, 8, tensor.Place{}, tensor.Int64, tensor.Of(1))
				x.Release()
			}
		})
	}
	wait.Wait()
	if len(held) != 0 {
		t.Errorf("%d are lent still", len(held))
	}
}

func TestBuffersAllocates(t *testing.T) {
	p := unsafe.Pointer(new([8]byte))
	l := bind.NewBuffers(func(unsafe.Pointer) {})
	if n := testing.AllocsPerRun(100, func() {
		x := l.Wrap(p, p, 8, tensor.Place{}, tensor.Int64, tensor.Of(1))
		x.Release()
	}); n != 0 {
		t.Errorf("%v allocations a tensor, want 0", n)
	}
}
