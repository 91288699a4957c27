//go:build !race

package shm_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/shm"
)

// TestWindowAllocBudget checks that windows allocate nothing. It is not parallel: the runtime counts the
// allocations of the whole process.
func TestWindowAllocBudget(t *testing.T) {
	key, _ := object(t, "0123456789")
	r := shm.NewRegistry(true)
	must(t, r.RegisterSystem("a", key, 0, 10))
	buf := make([]byte, 8)
	if got := testing.AllocsPerRun(200, func() {
		w, err := r.Open("a", 1, 8)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Read(buf); err != nil {
			t.Fatal(err)
		}
		if err := w.Write(buf); err != nil {
			t.Fatal(err)
		}
		w.Close()
	}); got != 0 {
		t.Errorf("%v allocations per window, want none", got)
	}
}

// TestCUDAWindowAllocBudget is TestWindowAllocBudget of device memory. It is not parallel, as that.
func TestCUDAWindowAllocBudget(t *testing.T) {
	r := shm.NewRegistry(true)
	r.SetDevices([]tensor.Accelerator{newGPU(0, 64)}, nil)
	must(t, r.RegisterCUDA("a", handle(0), 0, 64))
	if got := testing.AllocsPerRun(200, func() {
		w, err := r.Open("a", 8, 8)
		if err != nil {
			t.Fatal(err)
		}
		w.Buffer().Release()
		w.Close()
	}); got != 0 {
		t.Errorf("%v allocations per window, want none", got)
	}
	must(t, r.Close())
}

// TestDescriptorBudget checks that the regions of one object share a descriptor. It is not parallel: it counts
// descriptors of the process.
func TestDescriptorBudget(t *testing.T) {
	key, path := object(t, "0123456789")
	r := shm.NewRegistry(true)
	for range 100 {
		must(t, r.RegisterSystem("a", key, 0, 10))
		must(t, r.RegisterSystem("b", key, 2, 3))
		if r.RegisterSystem("c", key, 0, 11) == nil {
			t.Fatal("more than there is was registered")
		}
		if got := descriptors(t, path); got != 1 {
			t.Fatalf("%d descriptors are open for one object", got)
		}
		w, err := r.Open("a", 0, 1)
		must(t, err)
		w.Close()
		must(t, r.Unregister(shm.System, ""))
	}
	if got := descriptors(t, path); got != 0 {
		t.Errorf("%d descriptors are open after the last region is gone", got)
	}
}

// descriptors returns the number of open descriptors of the file.
func descriptors(t *testing.T, path string) int {
	t.Helper()
	links, err := filepath.Glob("/proc/self/fd/*")
	must(t, err)
	n := 0
	for _, l := range links {
		if to, err := os.Readlink(l); err == nil && to == path {
			n++
		}
	}
	return n
}
