package identity_test

import (
	"testing"

	"google.golang.org/protobuf/encoding/prototext"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/backendtest"
	"github.com/tutti-server/tutti/backends/identity"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// BenchmarkOverhead measures an execution of one row of two inputs and two outputs in the server's process. A library made for Triton, which has
// a process of its own, is compared with it.
func BenchmarkOverhead(b *testing.B) {
	cfg := &modelconfig.ModelConfig{}
	text := `name: "id" max_batch_size: 8
		input { name: "INPUT0" data_type: TYPE_FP32 dims: [ 2 ] } input { name: "INPUT1" data_type: TYPE_FP32 dims: [ 2 ] }
		output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 2 ] } output { name: "OUTPUT1" data_type: TYPE_FP32 dims: [ 2 ] }`
	if err := prototext.Unmarshal([]byte(text), cfg); err != nil {
		b.Fatal(err)
	}
	backend, err := identity.NewFactory().New(backends.Options{})
	if err != nil {
		b.Fatal(err)
	}
	pool := tensor.NewPool()
	model, err := backend.Load(b.Context(), backends.Settings{Model: "id", Version: 1, Config: cfg, Alloc: pool})
	if err != nil {
		b.Fatal(err)
	}
	x, err := model.NewInstance(b.Context(), tensor.Place{})
	if err != nil {
		b.Fatal(err)
	}
	row := backendtest.Of(tensor.FP32, []int64{1, 2}, float32(1), 2)
	batch := &backends.Batch{
		Requests: []backends.Request{{Rows: 1}}, Rows: 1, In: []tensor.Tensor{row.Tensor(b, pool), row.Tensor(b, pool)}, Out: make([]tensor.Tensor, 2), Allocator: pool,
	}
	b.Run("identity", func(b *testing.B) {
		backendtest.Overhead(b, func() {
			if err := x.Execute(b.Context(), batch); err != nil {
				b.Fatal(err)
			}
			tensor.ReleaseAll(batch.Out)
		})
	})
}
