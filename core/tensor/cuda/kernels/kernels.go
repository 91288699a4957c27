// Package kernels holds the device code of native steps and of batches: kernels.cu, compiled to PTX that the driver
// compiles for the GPU at hand. Each function puts one kernel into a stream. Like Stream.Launch it holds no references:
// the caller calls UsedUntil on what it read and SetReady on what it wrote, with the stream's next event.
package kernels

import (
	_ "embed"
	"sync"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/cuda"
)

//go:embed kernels.ptx
var ptx []byte

// Set are the kernels of one device. It is safe for concurrent use.
type Set struct {
	module *cuda.Module
	mu     sync.Mutex
	byName map[string]*cuda.Kernel // guarded by mu
}

// Load loads the kernels onto a device. It compiles them for the device's architecture, which the driver caches on disk.
func Load(d *cuda.Device) (*Set, error) {
	m, err := d.Load(ptx)
	return &Set{module: m, byName: map[string]*cuda.Kernel{}}, err
}

// kernel returns a kernel by its name in kernels.cu.
func (k *Set) kernel(name string) (*cuda.Kernel, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if f := k.byName[name]; f != nil {
		return f, nil
	}
	f, err := k.module.Kernel(name)
	if err == nil {
		k.byName[name] = f
	}
	return f, err
}

func (k *Set) launch(s *cuda.Stream, name string, g cuda.Grid, a *cuda.Args) error {
	f, err := k.kernel(name)
	if err != nil {
		return err
	}
	return s.Launch(f, g, a)
}

// rows is a grid with a block for each of n rows.
func rows(n int) cuda.Grid {
	return cuda.Grid{Blocks: [3]uint32{uint32(n), 1, 1}, Threads: [3]uint32{256, 1, 1}}
}

// Softmax writes the softmax of each of n rows of width FP32 numbers of src to dst.
func (k *Set) Softmax(s *cuda.Stream, dst, src *tensor.Tensor, n, width int) error {
	var a cuda.Args
	return k.launch(s, "softmax_rows", rows(n), a.Buffer(src.Buf, src.Off).Buffer(dst.Buf, dst.Off).Int(width))
}

// TopK writes the most largest of each of n rows of width FP32 numbers, descending, and their positions as INT32. Of equal numbers
// the lower position is first.
func (k *Set) TopK(s *cuda.Stream, values, indices, src *tensor.Tensor, n, width, most int) error {
	var a cuda.Args
	return k.launch(s, "top_k_rows", rows(n), a.Buffer(src.Buf, src.Off).Buffer(values.Buf, values.Off).Buffer(indices.Buf, indices.Off).Int(width).Int(most))
}

// Normalize maps pixels of ch channels through a table of 256 words of FP32 bits per channel. With planar the output is one plane after the other.
func (k *Set) Normalize(s *cuda.Stream, dst, src, table *tensor.Tensor, pixels, ch int, planar bool) error {
	var a cuda.Args
	flag := 0
	if planar {
		flag = 1
	}
	return k.launch(s, "normalize_32", cuda.Over(pixels*ch), a.Buffer(src.Buf, src.Off).Buffer(dst.Buf, dst.Off).Buffer(table.Buf, table.Off).Long(int64(pixels)).Int(ch).Int(flag))
}
