//go:build !race

package repository_test

import (
	"testing"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/cuda/cudatest"
)

// TestSubmitAllocBudget checks that Submit allocates nothing. It is not parallel: the runtime counts the
// allocations of the whole process.
func TestSubmitAllocBudget(t *testing.T) {
	cudatest.NotAtDevices(t, "the budget is that of the host")
	w := newWorld(t)
	pool := tensor.NewPool()
	w.more.Alloc = pool
	r := w.repo(t, folder(t, doubleModel+ensemble("ens", step("plain", "-1", "IN", "M"), step("plain", "-1", "M", "X"))))
	for _, name := range []string{"plain", "ens"} {
		if n := testing.AllocsPerRun(200, func() {
			req := infer.NewRequest()
			req.Model = name
			in, err := tensor.New(pool, tensor.FP32, tensor.Of(1, 1))
			if err != nil {
				t.Fatal(err)
			}
			req.Inputs = append(req.Inputs, infer.Named{Name: "IN", Tensor: in})
			call := infer.NewCall()
			r.Submit(t.Context(), req, call)
			resp, err := call.Wait()
			if err != nil {
				t.Fatal(err)
			}
			resp.Release()
		}); n != 0 {
			t.Errorf("%v allocations per request of %s, want none", n, name)
		}
	}
	if pool.InUse() != 0 {
		t.Errorf("%d bytes are in use", pool.InUse())
	}
}
