//go:build !race

package infer_test

import (
	"testing"

	"tutti/core/infer"
	"tutti/core/tensor"
)

// TestCallAllocBudget is not parallel, for the runtime counts everybody's allocations.
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
