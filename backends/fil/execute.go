package fil

import (
	"context"
	"runtime"
	"sync"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// Execute predicts the rows of a batch.
//
// hot: no allocation in the steady state, but for batches that are split over threads.
func (m *model) Execute(ctx context.Context, b *backends.Batch) error {
	if err := m.CheckExecute(ctx, true, b); err != nil {
		return err
	}
	in := &b.In[0]
	if !in.Present() || in.DType != tensor.FP32 || !m.fits(in.Shape) {
		return m.refuse(in)
	}
	x := tensor.Slice[float32](in)
	if int64(len(x)) != in.Shape.Elements() {
		return m.InputErrorf(0, status.InvalidArg, "expected %d bytes for a FP32 tensor of shape %s, got %d", 4*in.Shape.Elements(), in.Shape, in.Len)
	}
	for i := range m.Out {
		explain, shape := m.Out[i].Name == explainName, in.Shape
		shape.SetDim(1, int64(m.width))
		if explain {
			shape.SetDim(1, int64(m.forest.Outputs*(m.forest.Features+1)))
		}
		out, err := b.Alloc(i, tensor.FP32, shape)
		if err != nil {
			return m.OutputError(i, err)
		}
		if explain {
			err = m.explain(ctx, x, tensor.Slice[float32](out))
		} else {
			err = m.predict(ctx, x, tensor.Slice[float32](out))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// explain computes the Shapley values of the rows of x, row by row: they take far longer than predictions.
func (m *model) explain(ctx context.Context, x, out []float32) error {
	f := m.forest
	for ; len(x) > 0; x, out = x[f.Features:], out[f.Outputs*(f.Features+1):] {
		if ctx.Err() != nil {
			return status.ErrCancelled
		}
		f.Shapley(x[:f.Features], out[:f.Outputs*(f.Features+1)])
	}
	return nil
}

// fits reports whether an input has rows of the model's features.
func (m *model) fits(s tensor.Shape) bool {
	return s.Rank() == 2 && s.Dim(1) == int64(m.forest.Features)
}

// refuse returns the error for an input that the model cannot take.
func (m *model) refuse(in *tensor.Tensor) error {
	if !in.Present() {
		return m.InputErrorf(0, status.InvalidArg, "expected a FP32 tensor, got none")
	}
	return m.UnexpectedInput(0, in)
}

// A batch is split over threads in parts of at least partVisits tests, about a millisecond. Parts of at most sliceVisits are executed
// at a time, between which the execution sees that its requests were cancelled.
const (
	partVisits  = 500_000
	sliceVisits = 10_000_000
)

// predict predicts the rows of x.
func (m *model) predict(ctx context.Context, x, out []float32) error {
	features := m.forest.Features
	rows, visits := len(x)/features, max(m.forest.Visits(), 1)
	parts := min(m.most(), rows*visits/partVisits)
	if parts <= 1 {
		return m.part(ctx, x, out)
	}
	each := (rows + parts - 1) / parts
	var group sync.WaitGroup
	for first := 0; first < rows; first += each {
		last := min(first+each, rows)
		group.Go(func() { _ = m.part(ctx, x[first*features:last*features], out[first*m.width:last*m.width]) })
	}
	group.Wait()
	if ctx.Err() != nil {
		return status.ErrCancelled
	}
	return nil
}

// most returns the most threads of an execution.
func (m *model) most() int {
	if m.threads > 0 {
		return m.threads
	}
	return runtime.GOMAXPROCS(0)
}

// part predicts rows on this goroutine.
func (m *model) part(ctx context.Context, x, out []float32) error {
	features := m.forest.Features
	slice := max(sliceVisits/max(m.forest.Visits(), 1), 1)
	for len(x) > 0 {
		if ctx.Err() != nil {
			return status.ErrCancelled
		}
		rows := min(slice, len(x)/features)
		m.forest.Predict(x[:rows*features], out[:rows*m.width], m)
		x, out = x[rows*features:], out[rows*m.width:]
	}
	return nil
}

// Write implements forest.Writer: it writes predictions of rows to the output.
func (m *model) Write(out []float32, predictions []float64) {
	outputs := m.forest.Outputs
	switch {
	case m.result == bothClasses:
		for i, p := range predictions {
			out[2*i], out[2*i+1] = float32(1-p), float32(p)
		}
	case m.result == probabilities:
		for i, p := range predictions {
			out[i] = float32(p)
		}
	case outputs == 1:
		for i, p := range predictions {
			out[i] = 0
			if p > m.threshold {
				out[i] = 1
			}
		}
	default:
		for i := range out {
			out[i] = float32(largest(predictions[i*outputs:][:outputs]))
		}
	}
}

// largest returns the index of the largest value, of equal ones the first.
func largest(x []float64) int {
	at := 0
	for i, v := range x {
		if v > x[at] {
			at = i
		}
	}
	return at
}
