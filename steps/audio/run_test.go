package audio_test

import (
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/steps"
)

// makeStep returns a step of a model that batches.
func makeStep(tb testing.TB, f steps.Factory, given map[string]string) steps.Step {
	tb.Helper()
	params, err := f.Resolve(given)
	if err != nil {
		tb.Fatal(err)
	}
	s, err := f.New(&steps.Settings{Model: "tested", MaxBatch: 8, Params: params})
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// sampleBatch returns a batch of one request with a row of n samples.
func sampleBatch(tb testing.TB, n int) *backends.Batch {
	tb.Helper()
	pool := tensor.NewPool()
	in, err := tensor.New(pool, tensor.FP32, tensor.Of(1, int64(n)))
	if err != nil {
		tb.Fatal(err)
	}
	for i := range tensor.Slice[float32](&in) {
		tensor.Slice[float32](&in)[i] = float32(i%50) / 50
	}
	return batchOf(pool, in, 1)
}

// fileBatch returns a batch of one request with one file.
func fileBatch(tb testing.TB, file []byte) *backends.Batch {
	tb.Helper()
	pool := tensor.NewPool()
	in, err := tensor.NewBytes(pool, tensor.Of(1, 1), tensor.EncodedLen(len(file)))
	if err != nil {
		tb.Fatal(err)
	}
	tensor.AppendBytes(in.Bytes()[:0], file)
	return batchOf(pool, in, 3)
}

func batchOf(pool tensor.Allocator, in tensor.Tensor, outputs int) *backends.Batch {
	return &backends.Batch{Requests: []backends.Request{{Rows: 1}}, Rows: 1, In: []tensor.Tensor{in}, Out: make([]tensor.Tensor, outputs), Allocator: pool}
}

// release releases the tensors of a batch.
func release(b *backends.Batch) {
	tensor.ReleaseAll(b.In)
	tensor.ReleaseAll(b.Out)
}

// runStep runs a step on n samples and returns its error.
func runStep(tb testing.TB, f steps.Factory, params map[string]string, n int) error {
	tb.Helper()
	b := sampleBatch(tb, n)
	defer release(b)
	return makeStep(tb, f, params).Run(tb.Context(), b)
}
