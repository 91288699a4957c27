package cuda_test

import (
	"testing"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/cuda"
	"github.com/tutti-server/tutti/core/tensor/cuda/cudatest"
	"github.com/tutti-server/tutti/core/tensor/tensortest"
)

// openDriver opens the driver of the tests. Closing it fails the test on a fault or a leak.
func openDriver(tb testing.TB) *cuda.Driver {
	tb.Helper()
	driver, err := cuda.Open(cudatest.Library(tb))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := driver.Close(); err != nil {
			tb.Error(err)
		}
		cudatest.Check(tb)
	})
	return driver
}

// TestDevices runs the contract suite of devices: on the checking driver, or on GPUs with TUTTI_TEST_CUDA_DRIVER=libcuda.so.1.
func TestDevices(t *testing.T) {
	t.Parallel()
	tensortest.RunDevices(t, tensortest.Machine{
		Devices: openDriver(t).Count(),
		Open: func(tb testing.TB, n int, memory int64) []tensor.Accelerator {
			tb.Helper()
			o := cuda.Options{Limit: map[int]int64{}}
			for i := range n {
				o.Only = append(o.Only, i)
				o.Limit[i] = memory
			}
			devices, err := openDriver(tb).Devices(o)
			if err != nil {
				tb.Fatal(err)
			}
			var list []tensor.Accelerator
			for _, d := range devices {
				list = append(list, d)
			}
			return list
		},
		Pinned: func(tb testing.TB, d tensor.Accelerator) tensor.Allocator {
			tb.Helper()
			return cuda.NewPinned(d.(*cuda.Device), 16<<20, tensor.NewPool())
		},
	})
}
