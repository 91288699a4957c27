package square_test

import (
	"testing"

	"tutti/backends"
	"tutti/backends/backendtest"
	"tutti/backends/square"
	"tutti/core/infer"
	"tutti/core/tensor"
	"tutti/proto/modelconfig"
)

func settings(decoupled bool, maxBatch int32) backends.Settings {
	return backends.Settings{Model: "s", Version: 1, Config: &modelconfig.ModelConfig{
		Name: "s", MaxBatchSize: maxBatch,
		ModelTransactionPolicy: &modelconfig.ModelTransactionPolicy{Decoupled: decoupled},
	}}
}

func TestContract(t *testing.T) {
	t.Parallel()
	five := backendtest.Of(tensor.Int32, []int64{1}, int32(5))
	backendtest.Run(t, square.NewFactory(), backends.Options{}, backendtest.Fixture{
		Name: "five", Settings: settings(true, 0), In: []backendtest.Value{five}, Want: []backendtest.Value{five},
	})
}

func TestLoadRefuses(t *testing.T) {
	t.Parallel()
	b, err := square.NewFactory().New(backends.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for want, s := range map[string]backends.Settings{
		"model 's': backend 'square' does not batch, expected max_batch_size 0, found 4":                             settings(true, 4),
		"model 's': backend 'square' answers several times, expected 'model_transaction_policy { decoupled: true }'": settings(false, 0),
	} {
		if _, err := b.Load(t.Context(), s); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// count is how often a request was answered.
type count int

func (*count) Detach() {}

func (c *count) Answer(_ int, out []tensor.Tensor, _ infer.Params, _ bool) error {
	tensor.ReleaseAll(out)
	*c++
	return nil
}

func TestCounts(t *testing.T) {
	t.Parallel()
	b, err := square.NewFactory().New(backends.Options{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := b.Load(t.Context(), settings(true, 0))
	if err != nil {
		t.Fatal(err)
	}
	x, err := m.NewInstance(t.Context(), tensor.Place{})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int32{-2147483648, -1, 0, 1, 6} {
		alloc := tensor.NewChecked(t, nil)
		var got count
		batch := &backends.Batch{Reqs: make([]backends.Req, 1), Rows: 1, Out: make([]tensor.Tensor, 1), Allocator: alloc, Answers: &got}
		batch.In = []tensor.Tensor{backendtest.Of(tensor.Int32, []int64{1}, n).Tensor(t, alloc)}
		if err := x.Execute(t.Context(), batch); err != nil || int32(got) != max(n, 0) {
			t.Errorf("%d is answered %d times, error %v", n, got, err)
		}
		tensor.ReleaseAll(batch.In)
	}
}
