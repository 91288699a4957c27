package python_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// lines is a log that is safe to read while it is written.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer  // guarded by mu
	more chan struct{} // signalled after each write
}

func newLines() *lines { return &lines{more: make(chan struct{}, 1)} }

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Write(p)
	select {
	case l.more <- struct{}{}:
	default:
	}
	return len(p), nil
}

// with waits for a line that contains all the parts, and returns it.
func (l *lines) with(ctx context.Context, t *testing.T, parts ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		l.mu.Lock()
		text := l.text.String()
		l.mu.Unlock()
	next:
		for line := range strings.Lines(text) {
			for _, part := range parts {
				if !strings.Contains(line, part) {
					continue next
				}
			}
			return line
		}
		select {
		case <-l.more:
		case <-ctx.Done():
			t.Fatalf("no line has %q:\n%s", parts, text)
		}
	}
}

// readyModel is a model of testdata with one instance and its log.
type readyModel struct {
	backends.ReadinessChecker
	backends.Instance
	alloc tensor.Allocator
	log   *lines
}

func ready(t *testing.T, name string) *readyModel {
	t.Helper()
	r := &readyModel{log: newLines(), alloc: tensor.NewPool()}
	s := settings(t, name, &modelconfig.ModelConfig{
		Input:  []*modelconfig.ModelInput{input("IN", tensor.FP32, -1)},
		Output: []*modelconfig.ModelOutput{output("OUT", tensor.FP32, -1)},
	})
	s.Log = slog.New(slog.NewTextHandler(r.log, nil))
	m, err := opened(t, options(t)).Load(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	if r.Instance, err = m.NewInstance(t.Context(), tensor.Place{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Instance.Close(); err != nil {
			t.Error(err)
		}
	})
	r.ReadinessChecker = m.(backends.ReadinessChecker)
	return r
}

// execute executes a request with one number and returns its error.
func (r *readyModel) execute(t *testing.T, value float32) error {
	t.Helper()
	in, err := tensor.New(r.alloc, tensor.FP32, tensor.Of(1))
	if err != nil {
		t.Fatal(err)
	}
	defer in.Release()
	tensor.Slice[float32](&in)[0] = value
	b := &backends.Batch{Rows: 1, In: []tensor.Tensor{in}, Out: make([]tensor.Tensor, 1), Allocator: r.alloc}
	b.Requests = []backends.Request{{Ctx: t.Context(), Rows: 1}}
	if err := r.Execute(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	tensor.ReleaseAll(b.Out)
	return b.Requests[0].Err
}

// want checks that the error of Ready contains part, or is nil if part is empty.
func (r *readyModel) want(t *testing.T, part string) {
	t.Helper()
	if err := r.Ready(); (err == nil) != (part == "") || err != nil && !strings.Contains(err.Error(), part) {
		t.Errorf("ready: %v, want %q", err, part)
	}
}

// TestDeath checks a model that raises and then ends its process: both are logged as errors, the model is not ready
// without its worker, and the next request starts a new one.
func TestDeath(t *testing.T) {
	t.Parallel()
	r := ready(t, "mortal")
	r.want(t, "")
	if err := r.execute(t, 1); err == nil {
		t.Error("the model raised, but the request succeeded")
	}
	r.log.with(t.Context(), t, "level=ERROR", "instance=mortal_0_0", "ValueError: no such luck", "model.py(")
	r.want(t, "")
	if err := r.execute(t, 2); err == nil {
		t.Error("a request whose worker ended was served")
	}
	r.log.with(t.Context(), t, "level=ERROR", "instance=mortal_0_0", "exited", "exit status 3: last words")
	r.want(t, "Stub process 'mortal_0_0' is not healthy.")
	if err := r.execute(t, 0); err != nil {
		t.Error(err)
	}
	r.want(t, "")
}

// TestRevival checks that a worker that ended is replaced after a while without a request.
func TestRevival(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes as long as an instance stays without a worker")
	}
	t.Parallel()
	r := ready(t, "mortal")
	if err := r.execute(t, 2); err == nil {
		t.Error("a request whose worker ended was served")
	}
	for tick := time.NewTicker(10 * time.Millisecond); r.Ready() != nil; <-tick.C {
		if err := t.Context().Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSlowReadiness checks a model whose is_ready exceeds its time limit: it is not ready, executes requests
// meanwhile, and is ready once is_ready returns.
func TestSlowReadiness(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes as long as is_ready may")
	}
	t.Parallel()
	r := ready(t, "slow")
	r.want(t, "Timed out waiting for user-defined is_ready() response")
	if err := r.execute(t, 1); err != nil { // is_ready waits for this request
		t.Error(err)
	}
	r.want(t, "")
	if err := r.execute(t, 2); err != nil {
		t.Error(err)
	}
	r.want(t, "is_ready of the model returned False")
}
