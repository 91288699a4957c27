//go:build cgo

// Package kernels holds the device code of native steps and of batches: kernels.cu, compiled to PTX that the driver
// compiles for the GPU at hand. Set implements compute.Kernels. The PTX needs a driver for CUDA 11.8 or newer.
package kernels

import (
	_ "embed"
	"fmt"
	"sync"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/compute"
	"github.com/tutti-server/tutti/core/tensor/cuda"
)

//go:generate ../../../../scripts/generate-kernels

//go:embed kernels.ptx
var ptx []byte

// Set are the kernels of one device. It is safe for concurrent use.
type Set struct {
	module *cuda.Module
	mu     sync.Mutex
	byName map[string]*cuda.Kernel // guarded by mu
}

var _ compute.Kernels = (*Set)(nil)

// Load loads the kernels onto a device, whose context it makes. The driver compiles them for the device's architecture, and
// caches the result on disk.
func Load(d *cuda.Device) (compute.Kernels, error) {
	m, err := d.Load(ptx)
	if err != nil {
		return nil, status.Prefixf(err, "cannot load the kernels of native steps: ")
	}
	return &Set{module: m, byName: map[string]*cuda.Kernel{}}, nil
}

// kernel returns a kernel by its name in kernels.cu.
//
// hot: one lookup.
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

// launch puts a kernel with a thread or a block for each of n into the stream; nothing for n 0.
func (k *Set) launch(s tensor.Stream, name string, n int, block bool, a *cuda.Args) error {
	if n == 0 {
		return nil
	}
	stream, ok := s.(*cuda.Stream)
	if !ok {
		return fmt.Errorf("kernel %s: expected a stream of package cuda, found %T", name, s)
	}
	f, err := k.kernel(name)
	if err != nil {
		return err
	}
	g := cuda.Over(n)
	if block {
		g = cuda.Grid{Blocks: [3]uint32{uint32(n), 1, 1}, Threads: [3]uint32{256, 1, 1}}
	}
	return stream.Launch(f, g, a)
}

// each launches a kernel with a thread for each of n.
func (k *Set) each(s tensor.Stream, name string, n int, a *cuda.Args) error {
	return k.launch(s, name, n, false, a)
}

// rows launches a kernel with a block for each of n rows.
func (k *Set) rows(s tensor.Stream, name string, n int, a *cuda.Args) error {
	return k.launch(s, name, n, true, a)
}

// buffer appends a tensor's address.
func buffer(a *cuda.Args, t *tensor.Tensor) *cuda.Args { return a.Buffer(t.Buf, t.Off) }

// flag is 1 for true.
func flag(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// width returns the last dimension of a tensor, and the number of rows of it.
func width(t *tensor.Tensor) (rows, n int) {
	n = int(t.Shape.Dim(t.Shape.Rank() - 1))
	if n == 0 {
		return 0, 0
	}
	return int(t.Shape.Elements()) / n, n
}

// Score implements compute.Kernels.
func (k *Set) Score(s tensor.Stream, dst, src *tensor.Tensor, f compute.Function, divisor float32) error {
	var a cuda.Args
	n, classes := width(src)
	buffer(buffer(&a, src), dst).Long(int64(classes)).Int(int(f)).Float(divisor)
	return k.rows(s, "score_rows", n, &a)
}

// TopK implements compute.Kernels.
func (k *Set) TopK(s tensor.Stream, t *compute.TopK) error {
	var a cuda.Args
	n, classes := width(t.Src)
	counts := t.Counts
	if counts == nil {
		counts = t.Indices // not written
	}
	buffer(buffer(buffer(buffer(&a, t.Src), t.Values), t.Indices), counts)
	a.Long(int64(classes)).Int(t.K).Int(int(t.Function)).Int(flag(t.Counts != nil)).Float(t.Threshold)
	return k.rows(s, "top_k_rows", n, &a)
}

// ArgMax implements compute.Kernels.
func (k *Set) ArgMax(s tensor.Stream, index, value, src *tensor.Tensor) error {
	var a cuda.Args
	n, classes := width(src)
	buffer(buffer(buffer(&a, src), index), value).Long(int64(classes))
	return k.rows(s, "arg_max_rows", n, &a)
}

// MeanPool implements compute.Kernels.
func (k *Set) MeanPool(s tensor.Stream, dst, src, mask *tensor.Tensor, unit bool) error {
	var a cuda.Args
	rank := src.Shape.Rank()
	tokens, dim := src.Shape.Dim(rank-2), src.Shape.Dim(rank-1)
	if dim == 0 || tokens == 0 {
		return s.Fill(dst.Buf, dst.Off, dst.Len, nil)
	}
	n := int(dst.Shape.Elements() / dim)
	buffer(buffer(buffer(&a, src), mask), dst).Long(tokens).Long(dim).Int(flag(src.DType == tensor.FP16)).Int(flag(unit))
	return k.rows(s, "mean_pool", n, &a)
}

// Unit implements compute.Kernels.
func (k *Set) Unit(s tensor.Stream, dst, src *tensor.Tensor) error {
	var a cuda.Args
	n, dim := width(src)
	buffer(buffer(&a, src), dst).Long(int64(dim)).Int(flag(src.DType == tensor.FP16))
	return k.rows(s, "unit_rows", n, &a)
}
