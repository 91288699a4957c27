//go:build cgo

package openvino

import (
	"encoding/binary"
	"testing"

	"github.com/tutti-server/tutti/backends/backendtest"
	"github.com/tutti-server/tutti/core/tensor"
)

// example is the folder of the two-input model.
const example = "../../examples/backends/openvino/simple_openvino/1"

// loadExample returns an instance of the two-input model and a function that executes a batch of one row.
func loadExample(tb testing.TB) (*instance, func()) {
	tb.Helper()
	x := newTest(tb, example, `max_batch_size: 8 parameters { key: "INFERENCE_NUM_THREADS" value { string_value: "1" } }`)
	ids := zeros(tb, tensor.Int64, 1, 3)
	for i, id := range []uint64{0, 7, 99} {
		binary.LittleEndian.PutUint64(ids.Bytes()[8*i:], id)
	}
	b := newBatch(tb, 2, zeros(tb, tensor.FP32, 1, 4), ids)
	ctx := tb.Context()
	return x, func() {
		if err := x.Execute(ctx, b); err != nil {
			tb.Fatal(err)
		}
		tensor.ReleaseAll(b.Out)
	}
}

func TestExecuteAllocatesNothing(t *testing.T) {
	_, run := loadExample(t)
	for range 20 {
		run()
	}
	if n := testing.AllocsPerRun(100, run); n != 0 {
		t.Errorf("%v allocations per batch, want none", n)
	}
}

// BenchmarkOverhead measures one execution of the two-input model. bench/peers/backends/openvino.py measures
// OpenVINO's own call.
func BenchmarkOverhead(b *testing.B) {
	_, run := loadExample(b)
	b.Run("simple_openvino", func(b *testing.B) { backendtest.Overhead(b, run) })
}
