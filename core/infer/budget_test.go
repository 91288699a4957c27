//go:build !race

package infer_test

import (
	"testing"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
)

// TestCallAllocBudget checks that a Call allocates nothing. It is not parallel: the runtime counts the allocations
// of the whole process.
func TestCallAllocBudget(t *testing.T) {
	a := tensor.NewPool()
	if got := testing.AllocsPerRun(200, func() {
		req, resp, c := infer.NewRequest(), infer.NewResponse(), infer.NewCall()
		fill(t, req, a)
		resp.Outputs = append(resp.Outputs, infer.Named{Name: "P", Tensor: req.Inputs[0].Tensor.Move()})
		if err := req.CheckNames(); err != nil {
			t.Fatal(err)
		}
		if err := req.CheckInput(&req.Inputs[1]); err != nil {
			t.Fatal(err)
		}
		req.Release()
		c.Send(resp)
		c.Close(nil)
		r, err := c.Wait()
		if err != nil {
			t.Fatal(err)
		}
		r.Release()
	}); got != 0 {
		t.Errorf("%v allocations per request, want none", got)
	}
	if a.InUse() != 0 {
		t.Errorf("%d bytes are in use", a.InUse())
	}
}

// TestClassifyAllocBudget checks the allocations of a classification. It is not parallel: the runtime counts the
// allocations of the whole process.
func TestClassifyAllocBudget(t *testing.T) {
	a := tensor.NewPool()
	x := numbers(t, a, tensor.FP32, make([]byte, 4*2000), 2, 1000)
	defer x.Release()
	labels := make([]string, 1000)
	if got := testing.AllocsPerRun(200, func() {
		for _, n := range []int{1, 5, 100} {
			out, err := infer.Classify(a, &x, true, n, labels)
			if err != nil {
				t.Fatal(err)
			}
			out.Release()
		}
	}); got != 0 {
		t.Errorf("%v allocations per classification, want none", got)
	}
}
