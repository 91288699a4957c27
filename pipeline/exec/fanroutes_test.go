package exec_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// TestFanOutOfSplit divides what the alternatives of a split write, with failures inside of the fan-out, which count for none of them.
func TestFanOutOfSplit(t *testing.T) {
	t.Parallel()
	b, e := newBench(t), newBranching(8)
	e.explode("crop", 8, modulo(5), nil)
	e.explode("other", 8, modulo(5), nil)
	e.addSplit("crop", "item", "n", "INPUT0", false)
	e.param("step.crop.split", `{"weights": {"crop": 1, "other": 1}}`)
	e.step("add", "more", func(in []float32) (float32, error) {
		if in[0] < 0 {
			return 0, status.Errorf(status.Unavailable, "broken")
		}
		return in[0] + 100, nil
	}, "item")
	e.models["add"].Signature.MaxBatch = 8
	e.param("ensemble.gather", `{"out": {"of": "more", "counts": "count"}}`)
	e.output("out", modelconfig.DataType_TYPE_FP32, -1, -1)
	e.output("count", modelconfig.DataType_TYPE_INT32, 1)
	x, err := e.executor(t, b)
	if err != nil {
		t.Fatal(err)
	}
	for range 40 {
		got := resultOf(t, submit(t.Context(), x, b.batched(3)))
		if d := cmp.Diff(result{[]float32{103, 104, 105}, []float32{1, 3, 1}, []int32{3}}, got); d != "" {
			t.Fatalf("(-want +got):\n%s", d)
		}
		if a := submit(t.Context(), x, b.batched(-4)); status.CodeOf(a.err) != status.Unavailable {
			t.Fatalf("%v, want the error of 'add'", a.err)
		}
	}
	if crop, other := e.rows["crop"].Load(), e.rows["other"].Load(); crop == 0 || other == 0 || crop+other != 80 {
		t.Errorf("'crop' executed %d rows and 'other' %d, want 80 together", crop, other)
	}
}

// TestFanOutOfNothing divides tensors without elements whose shapes name a great many items: that request fails, and costs no memory.
func TestFanOutOfNothing(t *testing.T) {
	t.Parallel()
	const many = 1 << 40
	for _, dtype := range []tensor.DType{tensor.FP32, tensor.Bytes} {
		b, e := newBench(t), newBranching(8)
		sig := &config.Signature{Model: "crop", MaxBatch: 8, Inputs: []config.Port{port("INPUT0", tensor.FP32, -1)}, Outputs: []config.Port{port("OUTPUT0", dtype, -1, -1)}}
		e.custom(sig, func(b *backends.Batch) error {
			if dtype == tensor.Bytes {
				_, err := b.AllocBytes(0, tensor.Of(1, many, 0), 0)
				return err
			}
			_, err := b.Alloc(0, dtype, tensor.Of(1, many, 0))
			return err
		})
		addStep(e.cfg, "crop", "item", "INPUT0")
		e.param("step.crop.demux", "item")
		e.custom(&config.Signature{Model: "copy", MaxBatch: 8, Inputs: []config.Port{port("INPUT0", dtype, -1)}, Outputs: []config.Port{port("OUTPUT0", dtype, -1)}},
			func(*backends.Batch) error { return errBroken })
		addStep(e.cfg, "copy", "more", "item")
		e.param("ensemble.gather", `{"out": "more"}`)
		e.output("out", modelconfig.DataType(dtype), -1, -1)
		x, err := e.executor(t, b)
		if err != nil {
			t.Fatal(err)
		}
		const want = "in ensemble 'e', 'crop.demux': tensor 'item of crop': the request has more than 4096 items, the limit of ensemble.max_items"
		if a := submit(t.Context(), x, b.batched(1)); a.err == nil || a.err.Error() != want {
			t.Errorf("%s: %v, want %s", dtype, a.err, want)
		}
	}
}
