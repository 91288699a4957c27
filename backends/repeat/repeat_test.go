package repeat_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/backendtest"
	"github.com/tutti-server/tutti/backends/repeat"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/tensortest"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

func settings(decoupled bool, maxBatch int32) backends.Settings {
	return backends.Settings{Model: "r", Version: 1, Config: &modelconfig.ModelConfig{
		Name: "r", MaxBatchSize: maxBatch,
		ModelTransactionPolicy: &modelconfig.ModelTransactionPolicy{Decoupled: decoupled},
	}}
}

func inputs(values []int32, delays []uint32, wait uint32) []backendtest.Value {
	return []backendtest.Value{
		backendtest.Of(tensor.Int32, []int64{int64(len(values))}, values...),
		backendtest.Of(tensor.Uint32, []int64{int64(len(delays))}, delays...),
		backendtest.Of(tensor.Uint32, []int64{1}, wait),
	}
}

// TestContract runs the contract suite for backends.
func TestContract(t *testing.T) {
	t.Parallel()
	backendtest.Run(t, repeat.NewFactory(), backends.Options{}, backendtest.Fixture{
		Name: "three", Settings: settings(true, 0), In: inputs([]int32{4, 2, 9}, []uint32{0, 1, 0}, 1),
		Want: []backendtest.Value{
			backendtest.Of(tensor.Int32, []int64{1}, int32(9)),
			backendtest.Of(tensor.Uint32, []int64{1}, uint32(2)),
		},
		Bad: []backendtest.Bad{{Name: "delays", In: inputs([]int32{1, 2}, []uint32{0}, 0), Code: status.InvalidArg}},
	}, backendtest.Fixture{
		Name: "not decoupled", Settings: settings(false, 0), In: inputs([]int32{4}, []uint32{1}, 2),
		Want: []backendtest.Value{
			backendtest.Of(tensor.Int32, []int64{1}, int32(4)),
			backendtest.Of(tensor.Uint32, []int64{1}, uint32(0)),
		},
		Bad: []backendtest.Bad{{Name: "several", In: inputs([]int32{1, 2}, []uint32{0, 0}, 0), Code: status.Internal}},
	})
}

func TestLoadRefuses(t *testing.T) {
	t.Parallel()
	b, err := repeat.NewFactory().New(backends.Options{})
	if err != nil {
		t.Fatal(err)
	}
	const want = "model 'r': backend 'repeat' does not batch, expected max_batch_size 0, found 4"
	if _, err := b.Load(t.Context(), settings(true, 4)); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// recorder records the responses of a request. It disconnects the client after the given number of them.
type recorder struct {
	got   [][2]int64
	leave int
	stop  context.CancelFunc
	// began is the start of the request; detached are the times from then until each Detach.
	began    time.Time
	detached []time.Duration
}

func (r *recorder) Detach() { r.detached = append(r.detached, time.Since(r.began)) }

func (r *recorder) Respond(_ int, out []tensor.Tensor, _ infer.Params, _ bool) error {
	defer tensor.ReleaseAll(out)
	r.got = append(r.got, [2]int64{int64(tensor.Slice[int32](&out[0])[0]), int64(tensor.Slice[uint32](&out[1])[0])})
	if len(r.got) == r.leave {
		r.stop()
	}
	return nil
}

// TestResponses checks a client that receives all responses, and one that disconnects during a delay of an hour.
func TestResponses(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		delays []uint32
		leave  int
		want   [][2]int64
		code   status.Code
	}{
		"all":   {[]uint32{0, 0, 0}, 0, [][2]int64{{7, 0}, {-8, 1}, {9, 2}}, status.Unknown},
		"leave": {[]uint32{0, 3_600_000, 0}, 1, [][2]int64{{7, 0}}, status.Cancelled},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, err := repeat.NewFactory().New(backends.Options{})
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
			alloc := tensortest.NewChecked(t, nil)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			a := &recorder{leave: tt.leave, stop: cancel}
			batch := &backends.Batch{Requests: make([]backends.Request, 1), Rows: 1, Out: make([]tensor.Tensor, 2), Allocator: alloc, Responses: a}
			for _, v := range inputs([]int32{7, -8, 9}, tt.delays, 0) {
				batch.In = append(batch.In, v.Tensor(t, alloc))
			}
			defer tensor.ReleaseAll(batch.In)
			err = x.Execute(ctx, batch)
			if tt.leave > 0 && status.CodeOf(err) != tt.code || tt.leave == 0 && err != nil {
				t.Errorf("Execute: %v", err)
			}
			if diff := cmp.Diff(tt.want, a.got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// execute executes one request.
func execute(t *testing.T, decoupled bool, a *recorder, in []backendtest.Value) error {
	t.Helper()
	b, err := repeat.NewFactory().New(backends.Options{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := b.Load(t.Context(), settings(decoupled, 0))
	if err != nil {
		t.Fatal(err)
	}
	x, err := m.NewInstance(t.Context(), tensor.Place{})
	if err != nil {
		t.Fatal(err)
	}
	alloc := tensortest.NewChecked(t, nil)
	batch := &backends.Batch{Requests: make([]backends.Request, 1), Rows: 1, Out: make([]tensor.Tensor, 2), Allocator: alloc, Responses: a}
	for _, v := range in {
		batch.In = append(batch.In, v.Tensor(t, alloc))
	}
	defer tensor.ReleaseAll(batch.In)
	a.began = time.Now()
	return x.Execute(t.Context(), batch)
}

// TestWait checks that the instance is free once WAIT of a request is over, in simulated time.
func TestWait(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		delays   []uint32
		wait     uint32
		detached []time.Duration
		took     time.Duration
	}{
		{"at once", []uint32{30, 0, 70}, 0, []time.Duration{0}, 100},
		{"between", []uint32{30, 0, 70}, 50, []time.Duration{50}, 100},
		{"with a response", []uint32{30, 0, 70}, 30, []time.Duration{30}, 100},
		{"after all", []uint32{30, 0, 70}, 130, nil, 130},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var a recorder
				began := time.Now()
				if err := execute(t, true, &a, inputs([]int32{1, 2, 3}, tt.delays, tt.wait)); err != nil {
					t.Fatal(err)
				}
				for i := range tt.detached {
					tt.detached[i] *= time.Millisecond
				}
				if took := time.Since(began); took != tt.took*time.Millisecond || !slices.Equal(a.detached, tt.detached) || len(a.got) != 3 {
					t.Errorf("took %s, detached after %v, %d responses", took, a.detached, len(a.got))
				}
			})
		})
	}
}

// TestShapes checks the error for unequal shapes, which clients of Triton's backend match.
func TestShapes(t *testing.T) {
	t.Parallel()
	const want = "expected IN and DELAY shape to match, got [1] and [2]"
	if err := execute(t, true, &recorder{}, inputs([]int32{1}, []uint32{0, 0}, 0)); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}
