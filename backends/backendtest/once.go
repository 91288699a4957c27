package backendtest

import (
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/tensortest"
)

// Once executes one request of a number of rows on a new instance of a model on the host, and returns copies of the outputs. It reports
// memory that is not released.
func Once(t *testing.T, m backends.Model, rows int, in ...Value) ([]Value, error) {
	t.Helper()
	a := tensortest.NewChecked(t, nil)
	x, err := m.NewInstance(t.Context(), tensor.Place{})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	b := &backends.Batch{Requests: make([]backends.Request, 1), Rows: rows, Out: make([]tensor.Tensor, len(m.Signature().Outputs)), Allocator: a}
	defer tensor.ReleaseAll(b.Out)
	for _, v := range in {
		b.In = append(b.In, v.Tensor(t, a))
	}
	defer tensor.ReleaseAll(b.In)
	if err := x.Execute(t.Context(), b); err != nil {
		return nil, err
	}
	out := make([]Value, len(b.Out))
	for i := range b.Out {
		out[i] = ValueOf(&b.Out[i])
	}
	return out, nil
}
