package square_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/backendtest"
	"github.com/tutti-server/tutti/backends/square"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/tensortest"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

func settings(decoupled bool, maxBatch int32) backends.Settings {
	return backends.Settings{Model: "s", Version: 1, Config: &modelconfig.ModelConfig{
		Name: "s", MaxBatchSize: maxBatch,
		ModelTransactionPolicy: &modelconfig.ModelTransactionPolicy{Decoupled: decoupled},
	}}
}

// TestContract runs the contract suite for backends.
func TestContract(t *testing.T) {
	t.Parallel()
	one := backendtest.Of(tensor.Int32, []int64{1}, int32(1))
	five := backendtest.Of(tensor.Int32, []int64{1}, int32(5))
	backendtest.Run(t, square.NewFactory(), backends.Options{}, backendtest.Fixture{
		Name: "five", Settings: settings(true, 0), In: []backendtest.Value{five}, Want: []backendtest.Value{five},
	}, backendtest.Fixture{
		Name: "not decoupled", Settings: settings(false, 0), In: []backendtest.Value{one}, Want: []backendtest.Value{one},
		Bad: []backendtest.Bad{{Name: "five", In: []backendtest.Value{five}, Code: status.Internal}},
	}, backendtest.Fixture{
		Name: "batched", Settings: settings(true, 4), Rows: 1,
		In: []backendtest.Value{backendtest.Of(tensor.Int32, []int64{1, 1}, int32(2))}, Want: []backendtest.Value{backendtest.Of(tensor.Int32, []int64{1, 1}, int32(2))},
	})
}

func TestLoadRefuses(t *testing.T) {
	t.Parallel()
	b, err := square.NewFactory().New(backends.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := settings(true, 0)
	s.Config.Parameters = map[string]*modelconfig.ModelParameter{"CUSTOM_INFER_DELAY_NS": {StringValue: "-1"}}
	const want = "model 's': parameter 'CUSTOM_INFER_DELAY_NS' is '-1', expected an integer from 0 to 1125899906842624"
	if _, err := b.Load(t.Context(), s); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestRows checks that a request of several rows fails with the error of NVIDIA's backend.
func TestRows(t *testing.T) {
	t.Parallel()
	b, err := square.NewFactory().New(backends.Options{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := b.Load(t.Context(), settings(true, 4))
	if err != nil {
		t.Fatal(err)
	}
	x, err := m.NewInstance(t.Context(), tensor.Place{})
	if err != nil {
		t.Fatal(err)
	}
	var got count
	batch := &backends.Batch{Requests: []backends.Request{{Rows: 2}}, Rows: 2, Out: make([]tensor.Tensor, 1), Allocator: tensor.NewPool(), Responses: &got}
	batch.In = []tensor.Tensor{backendtest.Of(tensor.Int32, []int64{2, 1}, int32(1), 1).Tensor(t, batch.Allocator)}
	if err := x.Execute(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	if err := batch.Requests[0].Err; err == nil || err.Error() != "unexpected shape for IN input" || got != 0 {
		t.Errorf("%v and %d responses", err, got)
	}
}

// count counts responses.
type count int

func (*count) Detach() {}

func (c *count) Respond(_ int, out []tensor.Tensor, _ infer.Params, _ bool) error {
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
		alloc := tensortest.NewChecked(t, nil)
		var got count
		batch := &backends.Batch{Requests: make([]backends.Request, 1), Rows: 1, Out: make([]tensor.Tensor, 1), Allocator: alloc, Responses: &got}
		batch.In = []tensor.Tensor{backendtest.Of(tensor.Int32, []int64{1}, n).Tensor(t, alloc)}
		if err := x.Execute(t.Context(), batch); err != nil || int32(got) != max(n, 0) {
			t.Errorf("%d got %d responses, error %v", n, got, err)
		}
		tensor.ReleaseAll(batch.In)
	}
}

// order records which request of a batch each response belongs to, and how often the instance was detached.
type order struct {
	list  []int
	freed int
}

func (o *order) Detach() { o.freed++ }

func (o *order) Respond(i int, out []tensor.Tensor, _ infer.Params, _ bool) error {
	tensor.ReleaseAll(out)
	o.list = append(o.list, i)
	return nil
}

// TestBatch checks that the responses of a batch's requests alternate, in simulated time. Two requests fail, one
// has only an empty response, and the client of one has disconnected.
func TestBatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, err := square.NewFactory().New(backends.Options{})
		if err != nil {
			t.Fatal(err)
		}
		s := settings(true, 4)
		s.Config.Parameters = map[string]*modelconfig.ModelParameter{
			"CUSTOM_INFER_DELAY_NS": {StringValue: "1000"}, "CUSTOM_OUTPUT_DELAY_NS": {StringValue: "100"},
			"CUSTOM_CANCEL_DELAY_NS": {StringValue: "10000"}, "CUSTOM_FAIL_COUNT": {StringValue: "1"}, "CUSTOM_EMPTY_COUNT": {StringValue: "1"},
		}
		m, err := b.Load(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		x, err := m.NewInstance(t.Context(), tensor.Place{})
		if err != nil {
			t.Fatal(err)
		}
		gone, leave := context.WithCancel(t.Context())
		leave()
		alloc := tensortest.NewChecked(t, nil)
		var got order
		batch := &backends.Batch{Rows: 4, Out: make([]tensor.Tensor, 1), Allocator: alloc, Responses: &got}
		for i := range 4 {
			batch.Requests = append(batch.Requests, backends.Request{Rows: 1, First: i, Ctx: []context.Context{t.Context(), t.Context(), t.Context(), gone}[i]})
		}
		batch.In = []tensor.Tensor{backendtest.Of(tensor.Int32, []int64{4, 1}, int32(4), 1, 3, 9).Tensor(t, alloc)}
		defer tensor.ReleaseAll(batch.In)
		began := time.Now()
		if err := x.Execute(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != (3*1000+2*100+10000)*time.Nanosecond {
			t.Errorf("took %s", took)
		}
		if want := []int{0, 2, 0}; !slices.Equal(got.list, want) || got.freed != 1 {
			t.Errorf("responses %v, want %v; the instance was freed %d times", got.list, want, got.freed)
		}
		for i, want := range []string{"simulated failure", "", "simulated failure"} {
			if err := batch.Requests[i].Err; (err == nil) != (want == "") || err != nil && err.Error() != want {
				t.Errorf("request %d: %v, want %q", i, err, want)
			}
		}
		if err := batch.Requests[3].Err; !errors.Is(err, status.ErrCancelled) {
			t.Errorf("the request of the disconnected client: %v", err)
		}
	})
}
