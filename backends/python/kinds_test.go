package python_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/python"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// bench is an instance of the model kinds.
type bench struct {
	backends.Instance
	alloc tensor.Allocator
	log   bytes.Buffer
}

func newBench(t *testing.T) *bench {
	t.Helper()
	return benchWith(t, options(t))
}

func benchWith(t *testing.T, o backends.Options) *bench {
	t.Helper()
	b := &bench{alloc: tensor.NewPool()}
	s := settings(t, "kinds", &modelconfig.ModelConfig{
		MaxBatchSize: 8,
		Input:        []*modelconfig.ModelInput{input("IN", tensor.FP32, -1)},
		Output:       []*modelconfig.ModelOutput{output("OUT", tensor.FP32, -1)},
	})
	s.Log = slog.New(slog.NewTextHandler(&b.log, nil))
	open := opened(t, o)
	python.SetLoadTime(open, time.Hour) // stub-timeout-seconds is for requests here
	b.Instance = running(t, open, s, 1)[0]
	return b
}

// result is the outcome of one request.
type result struct {
	Values []float32
	Err    string
}

// execute runs a batch of requests of one row each.
func (b *bench) execute(ctx context.Context, t *testing.T, rows ...[]float32) []result {
	t.Helper()
	in, err := tensor.New(b.alloc, tensor.FP32, tensor.Of(int64(len(rows)), int64(len(rows[0]))))
	if err != nil {
		t.Fatal(err)
	}
	defer in.Release()
	batch := &backends.Batch{Rows: len(rows), In: []tensor.Tensor{in}, Out: make([]tensor.Tensor, 1), Allocator: b.alloc}
	all := tensor.Slice[float32](&in)[:0]
	for i, row := range rows {
		all = append(all, row...)
		batch.Requests = append(batch.Requests, backends.Request{Ctx: ctx, First: i, Rows: 1})
	}
	if err := b.Execute(ctx, batch); err != nil {
		t.Fatal(err)
	}
	out := make([]result, len(rows))
	for i := range batch.Requests {
		q := &batch.Requests[i]
		own := batch.Out
		if len(rows) > 1 {
			own = q.Out
		}
		switch {
		case q.Err != nil:
			out[i].Err = status.CodeOf(q.Err).String() + ": " + q.Err.Error()
		case own[0].Present():
			out[i].Values = append(out[i].Values, tensor.Slice[float32](&own[0])...)
		}
		tensor.ReleaseAll(own)
	}
	return out
}

// TestResponses checks the response or the error for each kind of result of a model.
func TestResponses(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Config["strict-outputs"] = "true"
	b := benchWith(t, o)
	const file = "backends/python/testdata/models/kinds/1/model.py"
	tests := []struct {
		name string
		kind float32
		want []string // parts of the error; none: a response
	}{
		{"response", 0, nil},
		{"raises", 1, []string{"Internal: Failed to process the request(s) for model 'kinds_0_0', message: ValueError: no such luck", file + "(29): one"}},
		{"exits", 2, []string{"Unavailable: Stub process 'kinds_0_0' is not healthy. the python worker of model 'kinds'", file, "exited: exit status 3: last words; send the request again"}},
		{"served after the exit", 0, nil},
		{"other name", 3, []string{"Internal: model 'kinds' ('", file + "'): unexpected output 'OTHER', expected 'OUT'"}},
		{"other type", 4, []string{"Internal: model 'kinds' ('", file + "'), output 'OUT': expected a FP32 tensor of shape [1,-1], found a INT64 tensor of shape [1,1]"}},
		{"other shape", 5, []string{"Internal: model 'kinds' ('", "expected a FP32 tensor of shape [1,-1], found a FP32 tensor of shape [1]"}},
		{"no responses", 6, []string{"Failed to process the request(s) for model 'kinds_0_0'", "size is:0"}},
		{"error", 7, []string{"Invalid argument: refused"}},
		{"response after all", 0, nil},
	}
	for _, tt := range tests {
		got := b.execute(t.Context(), t, []float32{tt.kind, 5})[0]
		for _, part := range tt.want {
			if !strings.Contains(got.Err, part) {
				t.Errorf("%s: error %q, want %q in it", tt.name, got.Err, part)
			}
		}
		if len(tt.want) == 0 && (got.Err != "" || len(got.Values) != 1) {
			t.Errorf("%s: %+v, want a response", tt.name, got)
		}
	}
}

// TestFreeOutputs checks outputs that differ from the configuration, alone and in batches: they pass unchanged, an
// undeclared output is dropped, and each causes one warning.
func TestFreeOutputs(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for range 2 {
		for _, kinds := range [][]float32{{3}, {4}, {5}, {3, 4, 5}} {
			in, err := tensor.New(b.alloc, tensor.FP32, tensor.Of(int64(len(kinds)), 1))
			if err != nil {
				t.Fatal(err)
			}
			copy(tensor.Slice[float32](&in), kinds)
			batch := &backends.Batch{Rows: len(kinds), In: []tensor.Tensor{in}, Out: make([]tensor.Tensor, 1), Allocator: b.alloc}
			for i := range kinds {
				batch.Requests = append(batch.Requests, backends.Request{Ctx: t.Context(), First: i, Rows: 1})
			}
			if err := b.Execute(t.Context(), batch); err != nil {
				t.Fatal(err)
			}
			for i, kind := range kinds {
				q := &batch.Requests[i]
				out := batch.Out
				if len(kinds) > 1 {
					out = q.Out
				}
				got := "none"
				if out[0].Present() {
					got = out[0].DType.String() + " " + out[0].Shape.String()
				}
				if want := map[float32]string{3: "none", 4: "INT64 [1,1]", 5: "FP32 [1]"}[kind]; q.Err != nil || got != want {
					t.Errorf("kind %v of %v: %s, error %v, want %s", kind, kinds, got, q.Err, want)
				}
				tensor.ReleaseAll(out)
			}
			in.Release()
		}
	}
	log := b.log.String()
	for _, part := range []string{"unexpected output 'OTHER', expected 'OUT'", "found a INT64 tensor of shape [1,1]"} {
		if strings.Count(log, part) != 1 {
			t.Errorf("the log has %q %d times, want once:\n%s", part, strings.Count(log, part), log)
		}
	}
}

// TestOwnOutputs checks that each request of a batch gets its own response or error, with different shapes.
func TestOwnOutputs(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	got := b.execute(t.Context(), t, []float32{8, 1}, []float32{0, 2}, []float32{7, 3}, []float32{8, 4})
	want := []result{{Values: []float32{8, 1}}, {Values: []float32{1}}, {Err: "Invalid argument: refused"}, {Values: []float32{8, 4}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("responses (-want +got):\n%s", diff)
	}
}

// TestKeptInputs checks that the inputs of the next request do not overwrite an input that the model retains.
func TestKeptInputs(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for i, want := range [][]float32{{1}, {9, 100}, {9, 101}, {9, 102}} {
		got := b.execute(t.Context(), t, []float32{9, float32(100 + i)})[0]
		if diff := cmp.Diff(result{Values: want}, got); diff != "" {
			t.Errorf("response %d (-want +got):\n%s", i, diff)
		}
	}
}

// TestLargeOutputs checks that shared memory grows for large outputs, and that later outputs do not overwrite them.
func TestLargeOutputs(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for range 3 {
		got := b.execute(t.Context(), t, []float32{11}, []float32{11})
		for i, r := range got {
			if len(r.Values) != 500000 || r.Values[0] != 1 || r.Values[499999] != 1 {
				t.Errorf("response %d has %d values, error %q", i, len(r.Values), r.Err)
			}
		}
	}
}

// TestHang checks that a worker that does not stop after its requests were cancelled is killed and replaced.
func TestHang(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Config["stub-timeout-seconds"] = "2"
	b := benchWith(t, o)
	late := &lateContext{Context: context.Background()}
	if got := b.execute(late, t, []float32{10}); !strings.Contains(got[0].Err, "did not answer within 2s after its requests were cancelled") {
		t.Errorf("hanging: %+v", got)
	}
	if got := b.execute(t.Context(), t, []float32{0}); got[0].Err != "" {
		t.Errorf("after it: %+v", got)
	}
}

// lateContext is cancelled at the second check, after the execution has started.
type lateContext struct {
	context.Context
	checks int
}

func (c *lateContext) Err() error {
	if c.checks++; c.checks > 1 {
		return context.Canceled
	}
	return nil
}
