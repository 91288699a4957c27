package kernels_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/cuda"
	"github.com/tutti-server/tutti/core/tensor/cuda/cudatest"
	"github.com/tutti-server/tutti/core/tensor/cuda/kernels"
)

type rig struct {
	t    *testing.T
	s    *cuda.Stream
	set  *kernels.Set
	host *tensor.Pool
}

func open(t *testing.T) *rig {
	t.Helper()
	driver, err := cuda.Open(cudatest.Library(t))
	if err != nil {
		t.Fatal(err)
	}
	list, err := driver.Devices(cuda.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := driver.Close(); err != nil {
			t.Error(err)
		}
		cudatest.Check(t)
	})
	s, err := list[0].Open("test", 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	set, err := kernels.Load(list[0])
	if err != nil {
		t.Fatal(err)
	}
	return &rig{t, s, set, tensor.NewPool()}
}

// up returns a tensor at the device with the given content, or without any.
func up[T tensor.Number](r *rig, d tensor.DType, n int, content []T) *tensor.Tensor {
	r.t.Helper()
	x, err := tensor.New(r.s, d, tensor.Of(int64(n)))
	if err != nil {
		r.t.Fatal(err)
	}
	if content != nil {
		h, _ := tensor.New(r.host, d, tensor.Of(int64(n)))
		copy(tensor.Slice[T](&h), content)
		if err := r.s.Copy(x.Buf, 0, h.Buf, 0, h.Len); err != nil {
			r.t.Fatal(err)
		}
		h.Release()
	}
	r.t.Cleanup(x.Release)
	return &x
}

func down[T tensor.Number](r *rig, x *tensor.Tensor) []T {
	r.t.Helper()
	h, _ := tensor.New(r.host, x.DType, x.Shape)
	if err := r.s.Copy(h.Buf, 0, x.Buf, 0, x.Len); err != nil {
		r.t.Fatal(err)
	}
	if err := r.s.Record().Wait(); err != nil {
		r.t.Fatal(err)
	}
	defer h.Release()
	return slices.Clone(tensor.Slice[T](&h))
}

func TestSoftmaxTopK(t *testing.T) {
	r := open(t)
	const n, width, most = 3, 301, 5
	g := rand.New(rand.NewPCG(1, 2))
	x := make([]float32, n*width)
	for i := range x {
		x[i] = float32(g.IntN(50)) / 4
	}
	src := up(r, tensor.FP32, n*width, x)
	soft, values, indices := up[float32](r, tensor.FP32, n*width, nil), up[float32](r, tensor.FP32, n*most, nil), up[int32](r, tensor.Int32, n*most, nil)
	if err := r.set.Softmax(r.s, soft, src, n, width); err != nil {
		t.Fatal(err)
	}
	if err := r.set.TopK(r.s, values, indices, src, n, width, most); err != nil {
		t.Fatal(err)
	}
	got, at := down[float32](r, soft), down[int32](r, indices)
	for row := range n {
		line := x[row*width:][:width]
		sum := 0.0
		for _, v := range line {
			sum += math.Exp(float64(v))
		}
		order := make([]int, width)
		for i := range order {
			order[i] = i
			if d := math.Abs(float64(got[row*width+i]) - math.Exp(float64(line[i]))/sum); d > 1e-6 {
				t.Fatalf("softmax differs by %g", d)
			}
		}
		slices.SortStableFunc(order, func(a, b int) int {
			switch {
			case line[a] > line[b]:
				return -1
			case line[a] < line[b]:
				return 1
			}
			return 0
		})
		for i := range most {
			if int(at[row*most+i]) != order[i] {
				t.Errorf("row %d: place %d is %d, want %d", row, i, at[row*most+i], order[i])
			}
		}
	}
}
