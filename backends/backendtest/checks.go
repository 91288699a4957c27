package backendtest

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// signature checks that the signature is complete and does not change.
func signature(t *testing.T, b *bench) {
	t.Helper()
	sig := b.model.Signature()
	if sig.Model != b.settings.Model || sig.Version != b.settings.Version {
		t.Errorf("signature of %s version %d, want %s version %d", sig.Model, sig.Version, b.settings.Model, b.settings.Version)
	}
	if len(sig.Inputs) != len(b.fixture.In) {
		t.Errorf("%d inputs, the fixture gives %d", len(sig.Inputs), len(b.fixture.In))
	}
	if len(sig.Outputs) == 0 {
		t.Error("no outputs")
	}
	for i, in := range b.settings.Config.GetInput() {
		if got := sig.Inputs[i].Name; got != in.GetName() {
			t.Errorf("input %d is %s, the configuration says %s", i, got, in.GetName())
		}
	}
	for i, out := range b.settings.Config.GetOutput() {
		if got := sig.Outputs[i].Name; got != out.GetName() {
			t.Errorf("output %d is %s, the configuration says %s", i, got, out.GetName())
		}
	}
	if again := b.model.Signature(); again != sig {
		t.Error("the signature changed")
	}
}

// execute runs the fixture's batch several times and checks outputs and memory.
func execute(t *testing.T, b *bench) {
	t.Helper()
	x := b.instance(t)
	for range 3 {
		b.runOnce(t, x)
		if n := b.alloc.Held(); n != 0 {
			t.Fatalf("%d buffers are held after a batch", n)
		}
	}
}

// runOnce runs the fixture's batch once and checks the outputs.
func (b *bench) runOnce(t *testing.T, x backends.Instance) {
	t.Helper()
	batch, free := b.batch(t, b.fixture.In, b.alloc)
	defer free()
	if err := failed(x.Execute(t.Context(), batch), batch); err != nil {
		t.Errorf("Execute: %v", err)
		return
	}
	b.check(t, batch)
}

func (b *bench) check(t *testing.T, batch *backends.Batch) {
	t.Helper()
	for i, v := range b.fixture.In {
		if got := ValueOf(&batch.In[i]); string(got.Data) != string(v.Data) {
			t.Errorf("input %d was changed", i)
		}
	}
	sig := b.model.Signature()
	for i := range batch.Out {
		checkPort(t, &sig.Outputs[i], sig.MaxBatch, batch, &batch.Out[i])
		if i < len(b.fixture.Want) {
			if diff := cmp.Diff(b.fixture.Want[i], ValueOf(&batch.Out[i])); diff != "" {
				t.Errorf("output %s (-want +got):\n%s", sig.Outputs[i].Name, diff)
			}
		}
	}
}

func checkPort(t *testing.T, p *config.Port, maxBatch int, batch *backends.Batch, got *tensor.Tensor) {
	t.Helper()
	switch {
	case !got.Present():
		t.Errorf("output %s is missing", p.Name)
	case got.DType != p.DType || !got.Shape.Matches(p.FullDims(maxBatch)):
		t.Errorf("output %s is %s %s, the signature says %s %s", p.Name, got.DType, got.Shape, p.DType, p.FullDims(maxBatch))
	case maxBatch > 0 && got.Shape.Dim(0) != int64(batch.Rows):
		t.Errorf("output %s has %d rows, want %d", p.Name, got.Shape.Dim(0), batch.Rows)
	case got.DType != tensor.Bytes && int64(got.Len) != got.Shape.Elements()*int64(got.DType.Size()):
		t.Errorf("output %s of shape %s has %d bytes", p.Name, got.Shape, got.Len)
	}
}

// cancelled checks that a cancelled batch fails as cancelled, or completes, and that the instance stays usable.
func cancelled(t *testing.T, b *bench) {
	t.Helper()
	x := b.instance(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	batch, free := b.batch(t, b.fixture.In, b.alloc)
	if err := failed(x.Execute(ctx, batch), batch); err != nil && status.CodeOf(err) != status.Cancelled {
		t.Errorf("Execute with a cancelled context: %v, want nothing or a cancellation", err)
	}
	free()
	b.runOnce(t, x)
}

// badInput checks that bad batches fail with the right code and leave the instance usable.
func badInput(t *testing.T, b *bench) {
	t.Helper()
	x := b.instance(t)
	for _, bad := range b.fixture.Bad {
		batch, free := b.batch(t, bad.In, b.alloc)
		err := failed(x.Execute(t.Context(), batch), batch)
		switch {
		case err == nil:
			t.Errorf("%s: no error", bad.Name)
		case bad.Code != status.Unknown && status.CodeOf(err) != bad.Code:
			t.Errorf("%s: %s error %q, want %s", bad.Name, status.CodeOf(err), err, bad.Code)
		}
		free()
		b.runOnce(t, x)
	}
}

// noMemory checks that the error of a failing allocator is returned, if the backend allocates, and that nothing
// leaks.
func noMemory(t *testing.T, b *bench) {
	t.Helper()
	x := b.instance(t)
	batch, free := b.batch(t, b.fixture.In, exhausted{})
	if err := failed(x.Execute(t.Context(), batch), batch); err == nil {
		b.check(t, batch)
	}
	free()
	b.runOnce(t, x)
}

// exhausted is an allocator that always fails.
type exhausted struct{ tensor.Allocator }

func (exhausted) Alloc(int) (*tensor.Buffer, error) { return nil, errors.New("no memory left") }
func (exhausted) Place() tensor.Place               { return tensor.Place{} }

// closeEarly creates instances that never execute; the bench closes everything twice.
func closeEarly(t *testing.T, b *bench) {
	t.Helper()
	b.instance(t)
	b.instance(t)
}

// outlive reads and releases outputs after instance, model and backend were closed.
func outlive(t *testing.T, b *bench) {
	t.Helper()
	x := b.instance(t)
	batch, free := b.batch(t, b.fixture.In, b.alloc)
	defer free()
	if err := failed(x.Execute(t.Context(), batch), batch); err != nil {
		t.Fatalf("Execute: %v", err)
	}
	b.close(t)
	b.check(t, batch)
}

// concurrent runs batches on several instances at once, or on one instance of a ConcurrentModel.
func concurrent(t *testing.T, b *bench) {
	t.Helper()
	const workers, rounds = 4, 25
	_, shared := b.model.(backends.ConcurrentModel)
	instances := make([]backends.Instance, workers)
	for i := range instances {
		if i > 0 && shared {
			instances[i] = instances[0]
			continue
		}
		instances[i] = b.instance(t)
	}
	var wg sync.WaitGroup
	for _, x := range instances {
		wg.Go(func() {
			for range rounds {
				b.runOnce(t, x)
			}
		})
	}
	wg.Wait()
}
