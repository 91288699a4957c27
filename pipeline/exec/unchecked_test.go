package exec_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/pipeline/exec"
	"github.com/tutti-server/tutti/pipeline/plan"
	"github.com/tutti-server/tutti/scheduler/dynamic"
)

// crops returns n rows [n] for a request whose value is n, and an invalid output for a negative value.
func crops(b *backends.Batch) error {
	for i := range b.Requests {
		q := &b.Requests[i]
		n := tensor.Slice[float32](&b.In[0])[q.First]
		d, shape := tensor.FP32, tensor.Of(int64(n), 1)
		switch n {
		case -1: // another data type
			d, shape = tensor.Int32, tensor.Of(1, 1)
		case -2: // no batch dimension
			shape = tensor.Of(2)
		case -3:
			shape = tensor.Of(1, 2, 1)
		}
		out, err := tensor.New(b.Allocator, d, shape)
		if err != nil {
			return err
		}
		for at := range out.Len / 4 {
			if d == tensor.FP32 {
				tensor.Slice[float32](&out)[at] = n
			}
		}
		if len(b.Requests) == 1 {
			b.SetOutput(0, out)
		} else {
			q.Out = []tensor.Tensor{out}
		}
	}
	return nil
}

// cropper returns an ensemble of crops and a batching model that records its batches.
func cropper(b *bench, second *batchRecorder) *exec.Executor {
	free, sig := signature("m", 1, 4), signature("m", 1, 8)
	free.Outputs[0].Unchecked = true
	p := chain(2, sig)
	p.Nodes[0].Signature = free
	p.Nodes[1].Runtime = []plan.RuntimeRule{plan.RuntimeAsIs}
	return b.executor(p, b.batching(free, full(3), model(crops)), b.batching(sig, dynamic.Rules{MaxBatch: 8}, second.instance()))
}

// TestRowsChange checks that three requests which become 2, 3 and 1 rows execute as one batch at the second step,
// and that each gets its rows back.
func TestRowsChange(t *testing.T) {
	t.Parallel()
	b := newHostBench(t)
	second := &batchRecorder{does: add(10)}
	x := cropper(b, second)
	values := []float32{2, 3, 1}
	calls := make([]*infer.Call, len(values))
	for i, v := range values {
		req := b.request(v)
		req.Async = true
		calls[i] = infer.NewCall()
		x.Submit(t.Context(), req, calls[i])
	}
	for i, v := range values {
		resp, err := calls[i].Wait()
		if err != nil {
			t.Fatal(err)
		}
		out := &resp.Outputs[0].Tensor
		if want := slices.Repeat([]float32{v + 10}, int(v)); !out.Shape.Equal(tensor.Of(int64(v), 1)) || !slices.Equal(tensor.Slice[float32](out), want) {
			t.Errorf("request %v: %s %v, want %v rows", v, out.Shape, tensor.Slice[float32](out), v)
		}
		resp.Release()
	}
	if !slices.Equal(second.reqs, []int{3}) || len(second.rows) != 6 {
		t.Errorf("the second step got batches of %v requests and %d rows in all, want one of 3 with 6 rows", second.reqs, len(second.rows))
	}
}

// TestFreeInputsAreChecked checks that a tensor which the second step cannot read fails its own request only, with
// the actual type or shape in the error.
func TestFreeInputsAreChecked(t *testing.T) {
	t.Parallel()
	b := newHostBench(t)
	x := cropper(b, &batchRecorder{does: share})
	want := []string{
		"data-type is 'INT32', but model 'm' expects 'FP32'",
		"Expected [-1,-1], got [2]",
		"Expected [-1,-1], got [1,2,1]",
	}
	for i, err := range together(t, b, x, -1, -2, -3) {
		if err == nil || !strings.Contains(err.Error(), want[i]) || !strings.HasPrefix(err.Error(), "in ensemble 'chain', [request id: <id_unknown>] ") {
			t.Errorf("error %v, want %q", err, want[i])
		}
	}
	req := b.request(9) // more rows than max_batch_size of the second step
	errs := make(chan error, 3)
	for _, r := range []*infer.Request{req, b.request(1), b.request(1)} {
		go func() {
			got, err := inferOne(t, x, r)
			if len(got) > 1 {
				t.Errorf("%d rows", len(got))
			}
			errs <- err
		}()
	}
	failed := 0
	for range 3 {
		if err := <-errs; err != nil {
			failed++
			if !strings.Contains(err.Error(), "inference request batch-size must be <= 8 for 'm'") {
				t.Error(err)
			}
		}
	}
	if failed != 1 {
		t.Errorf("%d requests failed, want one", failed)
	}
}

// TestFreeBatchDimension checks that a batch dimension is added or removed by the actual shape, as in Triton's
// ensembles.
func TestFreeBatchDimension(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name            string
		rule            plan.RuntimeRule
		dims, have, got tensor.Shape
	}{
		{"as it is", plan.RuntimeAsIs, tensor.Of(-1), tensor.Of(3), tensor.Of(3)},
		{"added", plan.RuntimePrepend, tensor.Of(-1), tensor.Of(3), tensor.Of(1, 3)},
		{"there already", plan.RuntimePrepend, tensor.Of(-1), tensor.Of(2, 3), tensor.Of(2, 3)},
		{"removed", plan.RuntimeStrip, tensor.Of(-1), tensor.Of(1, 3), tensor.Of(3)},
		{"not there", plan.RuntimeStrip, tensor.Of(-1), tensor.Of(3), tensor.Of(3)},
		{"rows are a dimension", plan.RuntimeStrip, tensor.Of(-1, -1), tensor.Of(3, 2), tensor.Of(3, 2)},
		{"several rows", plan.RuntimeStrip, tensor.Of(-1), tensor.Of(3, 2), tensor.Of(3, 2)},
		{"a scalar", plan.RuntimeStrip, tensor.Of(-1), tensor.Of(), tensor.Of()},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			out := tensor.Tensor{DType: tensor.FP32, Shape: tc.have}
			port := config.Port{Name: "IN", DType: tensor.FP32, Dims: tc.dims}
			if err := exec.TakeFree(tc.rule, &config.Signature{Model: "m"}, &port, &out); err != nil || !out.Shape.Equal(tc.got) {
				t.Errorf("%s becomes %s (%v), want %s", tc.have, out.Shape, err, tc.got)
			}
		})
	}
}

// TestFreeOutputOfEnsemble checks that an ensemble's response has the actual type and shape of an Unchecked output.
func TestFreeOutputOfEnsemble(t *testing.T) {
	t.Parallel()
	b := newHostBench(t)
	free := signature("m", 1, 8)
	free.Outputs[0].Unchecked = true
	p := chain(1, free)
	p.OutputRuntime = []plan.RuntimeRule{plan.RuntimeAsIs}
	x := b.executor(p, b.batching(free, dynamic.Rules{MaxBatch: 8}, model(crops)))
	for v, want := range map[float32]tensor.Shape{3: tensor.Of(3, 1), -1: tensor.Of(1, 1), -2: tensor.Of(2), -3: tensor.Of(1, 2, 1)} {
		call := infer.NewCall()
		x.Submit(t.Context(), b.request(v), call)
		resp, err := call.Wait()
		if err != nil {
			t.Fatal(err)
		}
		if out := &resp.Outputs[0].Tensor; !out.Shape.Equal(want) {
			t.Errorf("request %v: shape %s, want %s", v, out.Shape, want)
		}
		resp.Release()
	}
}
