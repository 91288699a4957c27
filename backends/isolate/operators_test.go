//go:build cgo

package isolate_test

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/onnx/onnxtest"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/logtest"
	"github.com/tutti-server/tutti/internal/tracing/capture"
)

// TestCrashingOperator checks a model with a custom operator that crashes on some inputs: each crash fails the request that caused it,
// requests of another instance succeed meanwhile, and inputs that crash it twice are captured and reported for the model.
func TestCrashingOperator(t *testing.T) {
	t.Parallel()
	o := options(t)
	captures := capture.New(capture.Settings{Bytes: 1 << 20, RequestBytes: 1 << 20})
	o.Crashes = captures
	s := settings(t, "operator", file(t, "custom.onnx"), `model_operations { op_library_filename: "twice.so" }`)
	onnxtest.Operators(t, filepath.Join(s.ModelDir, "twice.so"))
	printed := &logtest.Buffer{}
	s.Log, s.Instances = slog.New(slog.NewTextHandler(printed, nil)).With(slog.String("model", s.Model)), 2
	b := &bench{T: t, log: printed, pool: s.Alloc.(*tensor.Pool)}
	var err error
	if b.backend, err = factory().New(o); err != nil {
		t.Fatal(err)
	}
	if b.model, err = b.backend.Load(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if b.x, err = b.model.NewInstance(t.Context(), tensor.Place{}); err != nil {
		t.Fatal(err)
	}
	defer b.close()
	y, err := b.model.NewInstance(t.Context(), tensor.Place{})
	if err != nil {
		t.Fatal(err)
	}
	defer y.Close()
	others, stop := context.WithCancel(t.Context())
	done := make(chan int)
	go func() { // requests of another instance
		n := 0
		for ; others.Err() == nil; n++ {
			if got, err := twice(context.WithoutCancel(others), b.pool, y, float32(n)); got != 2*float32(n) || err != nil {
				t.Errorf("another instance: 2 * %d = %v, %v", n, got, err)
			}
		}
		done <- n
	}()
	for i, tt := range []struct {
		input float32
		want  string
	}{{-1, "SIGSEGV"}, {-2, "SIGABRT"}, {-3, "SIGSEGV"}, {-4, "exit status 3"}} {
		for n := 1; n <= 2; n++ {
			got, err := twice(t.Context(), b.pool, b.x, tt.input)
			if status.CodeOf(err) != status.Unavailable || status.RetryAfter(err) == 0 || !strings.Contains(fmt.Sprint(err), "model 'operator'") || !strings.Contains(fmt.Sprint(err), tt.want) {
				t.Errorf("crash %v: %v, %v; want an unavailable error of the model that has %q and says when to retry", tt.input, got, err, tt.want)
			}
			if got, err := twice(t.Context(), b.pool, b.x, 4); got != 8 || err != nil {
				t.Fatalf("after crash %v: 2 * 4 = %v, %v", tt.input, got, err)
			}
			repeated := n == 2
			if r := b.model.(backends.Reporter).Report(); repeated != (strings.Contains(r, "2 times") && strings.Contains(r, tt.want) && strings.Contains(r, " are captured as ")) && (repeated || i == 0) {
				t.Errorf("crash %v, %d times: report %q", tt.input, n, r)
			}
		}
	}
	stop()
	if n := <-done; n == 0 {
		t.Error("the other instance had no request")
	}
	if text := printed.String(); strings.Count(text, "again and again") != 4 || strings.Count(text, "model=operator") < 4 {
		t.Errorf("the log does not report four requests of the model:\n%s", text)
	}
}

// twice executes 2 * x.
func twice(ctx context.Context, pool *tensor.Pool, i backends.Instance, x float32) (float32, error) {
	in, err := tensor.New(pool, tensor.FP32, tensor.Of(1))
	if err != nil {
		return 0, err
	}
	defer in.Release()
	tensor.Slice[float32](&in)[0] = x
	batch := &backends.Batch{Rows: 1, Requests: []backends.Request{{Ctx: ctx, Rows: 1}}, In: []tensor.Tensor{in}, Out: make([]tensor.Tensor, 1), Allocator: pool}
	defer tensor.ReleaseAll(batch.Out)
	if err := i.Execute(ctx, batch); err != nil {
		return 0, err
	}
	return tensor.Slice[float32](&batch.Out[0])[0], nil
}
