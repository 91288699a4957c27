package steptest_test

import (
	"context"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/steps"
	"github.com/tutti-server/tutti/steps/steptest"
)

// upper is a small step that meets the contract: it copies texts and refuses empty ones.
type upper struct{}

func (upper) Run(_ context.Context, b *backends.Batch) error {
	in := &b.In[0]
	t, err := b.AllocBytes(0, in.Shape, in.Len)
	if err != nil {
		return err
	}
	copy(t.Bytes(), in.Bytes())
	rest := in.Bytes()
	for row := range b.Rows {
		elem, next, ok := tensor.NextBytes(rest)
		if !ok {
			break
		}
		if len(elem) == 0 {
			b.Fail(row, status.Errorf(status.InvalidArg, "input 'TEXT' is empty"))
		}
		rest = next
	}
	return nil
}

func TestRun(t *testing.T) {
	t.Parallel()
	port := func(name string) []config.Port {
		return []config.Port{{Name: name, DType: tensor.Bytes, Dims: tensor.Of(1)}}
	}
	f := steps.Factory{
		Name: "copy", Doc: "Copies texts.", Params: []steps.Param{{Key: "mode", Doc: "the mode", Required: true}},
		Signature: func(*steps.Settings) (*config.Signature, error) {
			return &config.Signature{Inputs: port("TEXT"), Outputs: port("COPY")}, nil
		},
		New: func(*steps.Settings) (steps.Step, error) { return upper{}, nil },
	}
	text := func(s ...string) []steptest.Value {
		return []steptest.Value{steptest.Text([]int64{int64(len(s)), 1}, s...)}
	}
	steptest.Run(t, f,
		steptest.Case{Name: "texts", MaxBatch: 8, Params: map[string]string{"mode": "x"}, Requests: []steptest.Request{
			{Inputs: text("a", "bcd"), Want: text("a", "bcd")},
			{Inputs: text(""), WantErr: "is empty"},
			{Inputs: text("ef"), Want: text("ef")},
		}},
		steptest.Case{Name: "no mode", WantNewErr: "needs parameter 'mode'"},
	)
}
