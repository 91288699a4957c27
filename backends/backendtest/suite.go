package backendtest

import (
	"context"
	"log/slog"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/tensortest"
)

// Fixture is a model, and a batch with its expected outputs.
type Fixture struct {
	Name string
	// Settings select the model. The suite sets the allocator and the log.
	Settings backends.Settings
	// In are the batch's inputs in signature order, Rows its batch dimension (0 means 1).
	In   []Value
	Rows int
	// Want are the expected outputs in signature order. Nil checks types and shapes only. For a decoupled model they are those of
	// the last response.
	Want []Value
	// Bad are batches that the model must refuse.
	Bad []Bad
}

// Bad is a batch that must fail, as a whole or every request of it.
type Bad struct {
	Name string
	In   []Value
	// Code is the expected code; Unknown accepts any.
	Code status.Code
}

// Run checks a backend with its models. options.Log may be nil.
func Run(t *testing.T, factory backends.Factory, options backends.Options, fixtures ...Fixture) {
	t.Helper()
	if options.Log == nil {
		options.Log = slog.New(slog.DiscardHandler)
	}
	t.Run("missing model", func(t *testing.T) { missingModel(t, factory, options, fixtures[0]) })
	checks := map[string]func(*testing.T, *bench){
		"signature":       signature,
		"execute":         execute,
		"cancelled":       cancelled,
		"bad input":       badInput,
		"no memory":       noMemory,
		"close early":     closeEarly,
		"outputs outlive": outlive,
		"concurrent":      concurrent,
	}
	for _, f := range fixtures {
		for name, check := range checks {
			t.Run(f.Name+"/"+name, func(t *testing.T) {
				t.Parallel()
				b := newBench(t, factory, options, f)
				check(t, b)
				b.close(t)
			})
		}
	}
}

// bench is a loaded fixture.
type bench struct {
	fixture  Fixture
	settings backends.Settings
	alloc    *tensortest.Checked
	backend  backends.Backend
	model    backends.Model
	open     []backends.Instance
}

func newBench(t *testing.T, factory backends.Factory, options backends.Options, f Fixture) *bench {
	t.Helper()
	backend, err := factory.New(options)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	b := &bench{fixture: f, settings: f.Settings, backend: backend, alloc: tensortest.NewChecked(t, nil)}
	b.settings.Alloc, b.settings.Log = b.alloc, options.Log
	if b.settings.Instances == 0 {
		b.settings.Instances = 1
	}
	if b.model, err = backend.Load(t.Context(), b.settings); err != nil {
		t.Fatalf("Load: %v", err)
	}
	return b
}

// close closes everything in the order of the contract, twice each.
func (b *bench) close(t *testing.T) {
	t.Helper()
	for _, x := range b.open {
		closeTwice(t, "instance", x.Close)
	}
	closeTwice(t, "model", b.model.Close)
	closeTwice(t, "backend", b.backend.Close)
}

func closeTwice(t *testing.T, what string, f func() error) {
	t.Helper()
	for range 2 {
		if err := f(); err != nil {
			t.Errorf("closing the %s: %v", what, err)
		}
	}
}

func (b *bench) instance(t *testing.T) backends.Instance {
	t.Helper()
	x, err := b.model.NewInstance(t.Context(), tensor.Place{})
	if err != nil {
		t.Fatalf("NewInstance: %v", err)
	}
	b.open = append(b.open, x)
	return x
}

// batch creates a batch of one request with values in memory of a. free releases its remaining tensors.
func (b *bench) batch(t *testing.T, in []Value, a tensor.Allocator) (batch *backends.Batch, free func()) {
	t.Helper()
	rows := max(1, b.fixture.Rows)
	batch = &backends.Batch{
		Requests:  []backends.Request{{Ctx: t.Context(), Rows: rows}},
		Rows:      rows,
		Out:       make([]tensor.Tensor, len(b.model.Signature().Outputs)),
		Allocator: a,
	}
	if b.model.Signature().Decoupled {
		batch.Responses = (*last)(batch)
	}
	for _, v := range in {
		batch.In = append(batch.In, v.Tensor(t, b.alloc))
	}
	return batch, func() {
		for i := range batch.In {
			batch.In[i].Release()
		}
		for i := range batch.Out {
			batch.Out[i].Release()
		}
	}
}

// last stores the last response of a decoupled model as the outputs of its batch.
type last backends.Batch

// Respond implements backends.Responses.
func (l *last) Respond(_ int, out []tensor.Tensor, _ infer.Params, _ bool) error {
	b := (*backends.Batch)(l)
	for i := range out {
		b.SetOutput(i, out[i].Move())
	}
	return nil
}

// Detach implements backends.Responses. It does nothing: there is no next batch.
func (*last) Detach() {}

// failed returns the error of the batch, or of its only request.
func failed(err error, b *backends.Batch) error {
	if err != nil {
		return err
	}
	return b.Requests[0].Err
}

func missingModel(t *testing.T, factory backends.Factory, options backends.Options, f Fixture) {
	t.Helper()
	if factory.DefaultFile == "" {
		t.Skip("the backend reads no file")
	}
	backend, err := factory.New(options)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	s := f.Settings
	s.Dir, s.ModelDir, s.Alloc, s.Log = t.TempDir(), t.TempDir(), tensor.NewPool(), options.Log
	if m, err := backend.Load(t.Context(), s); err == nil {
		t.Errorf("Load of an empty folder = %v, want an error", m)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if m, err := backend.Load(ctx, s); err == nil {
		t.Errorf("Load with a cancelled context = %v, want an error", m)
	}
	closeTwice(t, "backend", backend.Close)
}
