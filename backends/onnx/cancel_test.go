//go:build cgo

package onnx

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// leaveSoon returns a context that is cancelled while a run of hours is in progress.
func leaveSoon(tb testing.TB) context.Context {
	tb.Helper()
	ctx, leave := context.WithCancel(tb.Context())
	timer := time.AfterFunc(20*time.Millisecond, leave)
	tb.Cleanup(func() {
		timer.Stop()
		leave()
	})
	return ctx
}

// loopBatch returns a batch of the model that counts to n.
func loopBatch(tb testing.TB, n int64) *backends.Batch {
	tb.Helper()
	pool := tensor.NewPool()
	b := &backends.Batch{Rows: 1, Out: make([]tensor.Tensor, 1), Allocator: pool}
	for _, d := range []tensor.DType{tensor.Int64, tensor.FP32} {
		in, err := tensor.New(pool, d, tensor.Of(1))
		if err != nil {
			tb.Fatal(err)
		}
		clear(in.Bytes())
		b.In = append(b.In, in)
	}
	*(*int64)(b.In[0].Pointer()) = n
	tb.Cleanup(func() {
		tensor.ReleaseAll(b.In)
		b.Out[0].Release()
	})
	return b
}

// TestCancelRun checks that a run that would take hours is stopped, and that the instance stays usable.
func TestCancelRun(t *testing.T) {
	t.Parallel()
	m, err := loadFile(t, openBackend(t, nil), "loop.onnx", "")
	if err != nil {
		t.Fatal(err)
	}
	for name, over := range map[string]func(*testing.T, *backends.Batch) context.Context{
		"alone": func(t *testing.T, _ *backends.Batch) context.Context { t.Helper(); return leaveSoon(t) },
		"all members": func(t *testing.T, b *backends.Batch) context.Context {
			t.Helper()
			b.Requests = []backends.Request{{Ctx: leaveSoon(t)}, {Ctx: leaveSoon(t)}}
			return context.Background()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x, err := m.NewInstance(t.Context(), tensor.Place{})
			if err != nil {
				t.Fatal(err)
			}
			defer x.Close()
			for range 2 {
				b := loopBatch(t, 1<<40)
				if err := x.Execute(over(t, b), b); !errors.Is(err, status.ErrCancelled) {
					t.Fatalf("Execute = %v, want a cancellation", err)
				}
				b = loopBatch(t, 3)
				if err := x.Execute(t.Context(), b); err != nil || *(*float32)(b.Out[0].Pointer()) != 3 {
					t.Fatalf("the next run fails: %v", err)
				}
			}
		})
	}
}

// TestMemberStays checks that a run continues while a client of its batch is connected.
func TestMemberStays(t *testing.T) {
	t.Parallel()
	m, err := loadFile(t, openBackend(t, nil), "loop.onnx", "")
	if err != nil {
		t.Fatal(err)
	}
	x, err := m.NewInstance(t.Context(), tensor.Place{})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	gone, leave := context.WithCancel(t.Context())
	leave()
	b := loopBatch(t, 20000)
	b.Requests = []backends.Request{{Ctx: gone}, {Ctx: t.Context()}}
	if err := x.Execute(context.Background(), b); err != nil {
		t.Errorf("Execute = %v", err)
	}
}

// TestCancelLoad checks that a cancelled load ends.
func TestCancelLoad(t *testing.T) {
	t.Parallel()
	l := openTest(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	set := defaultSettings(1)
	if s, err := openSession(ctx, l, "testdata/mlp.onnx", &set); !errors.Is(err, status.ErrCancelled) {
		t.Errorf("openSession = %v, %v, want a cancellation", s, err)
	}
}
