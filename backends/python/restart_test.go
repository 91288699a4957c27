package python_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// gated is an instance of the model "gated", whose workers initialize it when open is called.
type gated struct {
	backends.Instance
	alloc  tensor.Allocator
	folder string
}

func newGated(t *testing.T) *gated {
	t.Helper()
	g := &gated{folder: t.TempDir()}
	if err := errors.Join(os.Mkdir(filepath.Join(g.folder, "starts"), 0o700), unix.Mkfifo(filepath.Join(g.folder, "gate"), 0o600)); err != nil {
		t.Fatal(err)
	}
	s := settings(t, "gated", &modelconfig.ModelConfig{
		Input: []*modelconfig.ModelInput{input("IN", tensor.FP32, 1)}, Output: []*modelconfig.ModelOutput{output("OUT", tensor.FP32, 1)},
		Parameters: map[string]*modelconfig.ModelParameter{"folder": {StringValue: g.folder}},
	})
	g.alloc = s.Alloc
	opening := make(chan error, 1)
	go func() { opening <- g.open() }()
	g.Instance = running(t, opened(t, options(t)), s, 1)[0]
	if err := <-opening; err != nil {
		t.Fatal(err)
	}
	return g
}

// open waits until a worker initializes the model, and lets it go on.
func (g *gated) open() error {
	return os.WriteFile(filepath.Join(g.folder, "gate"), nil, 0o600)
}

// awaitStart waits until n workers have begun to initialize the model.
func (g *gated) awaitStart(t *testing.T, n int) {
	t.Helper()
	for len(g.starts(t)) < n {
		if t.Context().Err() != nil {
			t.Fatal("no worker starts")
		}
	}
}

func (g *gated) starts(t *testing.T) []os.DirEntry {
	t.Helper()
	list, err := os.ReadDir(filepath.Join(g.folder, "starts"))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// send executes a request. One with the value 1 ends the worker.
func (g *gated) send(ctx context.Context, value float32) error {
	in, err := tensor.New(g.alloc, tensor.FP32, tensor.Of(1))
	if err != nil {
		return err
	}
	defer in.Release()
	tensor.Slice[float32](&in)[0] = value
	b := &backends.Batch{Rows: 1, In: []tensor.Tensor{in}, Out: make([]tensor.Tensor, 1), Allocator: g.alloc, Requests: []backends.Request{{Ctx: ctx, Rows: 1}}}
	defer func() { tensor.ReleaseAll(b.Out) }()
	return errors.Join(g.Execute(ctx, b), b.Requests[0].Err)
}

// TestClientsLeaveDuringStart checks that a worker that is started again goes on to start when the client whose request began it leaves, and
// serves the next request. Clients that wait for less time than a start takes must not keep a model from coming back.
func TestClientsLeaveDuringStart(t *testing.T) {
	t.Parallel()
	g := newGated(t)
	if err := g.send(t.Context(), 1); status.CodeOf(err) != status.Unavailable {
		t.Fatalf("a request that ends the worker: %v, want it to be unavailable", err)
	}
	for range 3 {
		ctx, leave := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() { left <- g.send(ctx, 0) }()
		g.awaitStart(t, 2)
		leave()
		if err := <-left; status.CodeOf(err) != status.Cancelled {
			t.Errorf("a request whose client left during the start: %v", err)
		}
	}
	served := make(chan error, 1)
	go func() { served <- g.send(t.Context(), 0) }()
	if err := g.open(); err != nil {
		t.Fatal(err)
	}
	if err := <-served; err != nil {
		t.Errorf("the request after those whose clients left: %v", err)
	}
	if n := len(g.starts(t)); n != 2 {
		t.Errorf("%d workers were started, want the first one and one after its end", n)
	}
}

// TestCloseDuringStart checks that closing an instance ends the start of a worker.
func TestCloseDuringStart(t *testing.T) {
	t.Parallel()
	g := newGated(t)
	if err := g.send(t.Context(), 1); status.CodeOf(err) != status.Unavailable {
		t.Fatalf("a request that ends the worker: %v, want it to be unavailable", err)
	}
	waits := make(chan error, 1)
	go func() { waits <- g.send(t.Context(), 0) }()
	g.awaitStart(t, 2)
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-waits; status.CodeOf(err) != status.Unavailable {
		t.Errorf("a request that waited for the worker of a closed instance: %v, want it to be unavailable", err)
	}
}
