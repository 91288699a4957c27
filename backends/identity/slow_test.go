package identity_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/tensortest"
)

const one = `input { name: "INPUT0" data_type: TYPE_FP32 dims: [ 1 ] } output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 1 ] }`

// took returns the duration of an execution whose requests have the given client contexts.
func took(i backends.Instance, clients ...context.Context) (time.Duration, error) {
	b := &backends.Batch{Rows: 1, In: make([]tensor.Tensor, 1), Out: make([]tensor.Tensor, 1)}
	for _, ctx := range clients {
		b.Requests = append(b.Requests, backends.Request{Ctx: ctx, Rows: 1})
	}
	began := time.Now()
	err := i.Execute(context.Background(), b)
	return time.Since(began), err
}

// TestDelays checks the delay of each instance, and that it ends when all clients disconnect, in simulated time.
func TestDelays(t *testing.T) {
	t.Parallel()
	m, err := load(t, one+param("execute_delay_ms", "100")+param("instance_wise_delay_multiplier", "4"))
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := m.(backends.ConcurrentModel); ok {
		t.Error("a model with a delay runs where its callers are")
	}
	synctest.Test(t, func(t *testing.T) {
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		for k, want := range []time.Duration{100, 400, 800} {
			i, err := m.NewInstance(t.Context(), tensor.Place{})
			if err != nil {
				t.Fatal(err)
			}
			want *= time.Millisecond
			for _, clients := range [][]context.Context{{t.Context()}, {}, {gone, t.Context()}, {t.Context(), gone}} {
				if d, err := took(i, clients...); d != want || err != nil {
					t.Errorf("instance %d took %s, %v; want %s", k, d, err, want)
				}
			}
			if d, err := took(i, gone, gone); d != 0 || !errors.Is(err, status.ErrCancelled) {
				t.Errorf("without a client instance %d took %s, %v", k, d, err)
			}
		}
	})
}

// TestCreationDelay checks that creation_delay_sec delays loading, in simulated time.
func TestCreationDelay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		_, err := load(t, one+param("creation_delay_sec", "3"))
		if d := time.Since(began); d != 3*time.Second || err != nil {
			t.Errorf("loading took %s, %v", d, err)
		}
	})
}

// TestZeros checks that omitted optional inputs yield zeros, and other absent inputs absent outputs.
func TestZeros(t *testing.T) {
	t.Parallel()
	m, err := load(t, pairs+`input { name: "INPUT2" data_type: TYPE_INT16 dims: [ -1, 3 ] optional: true } output { name: "OUTPUT2" data_type: TYPE_INT16 dims: [ -1, 3 ] }`)
	if err != nil {
		t.Fatal(err)
	}
	i, err := m.NewInstance(t.Context(), tensor.Place{})
	if err != nil {
		t.Fatal(err)
	}
	alloc := tensortest.NewChecked(t, nil)
	b := &backends.Batch{Rows: 2, In: make([]tensor.Tensor, 3), Out: make([]tensor.Tensor, 3), Allocator: alloc}
	if err := i.Execute(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	for port, want := range []struct {
		shape tensor.Shape
		bytes int
	}{{}, {tensor.Of(2, 1), 8}, {tensor.Of(2, 1, 3), 12}} {
		out := &b.Out[port]
		if port == 0 {
			if out.Present() {
				t.Error("an input that is not optional counts as absent")
			}
			continue
		}
		if !out.Shape.Equal(want.shape) || out.Len != want.bytes {
			t.Errorf("output %d is %s of %d bytes", port, out.Shape, out.Len)
		}
		for _, v := range out.Bytes() {
			if v != 0 {
				t.Errorf("output %d is not zeros", port)
				break
			}
		}
		out.Release()
	}
}
