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

// TestContract runs the contract suite for backends.
func TestContract(t *testing.T) {
	t.Parallel()
	cfg := &modelconfig.ModelConfig{}
	if err := prototext.Unmarshal([]byte(pairs), cfg); err != nil {
		t.Fatal(err)
	}
	text := backendtest.Strings([]int64{2, 1}, "one", "")
	numbers := backendtest.Of(tensor.FP32, []int64{2, 1, 2}, float32(1), 2, 3, 4)
	none := backendtest.Of[float32](tensor.FP32, []int64{2, 0, 2})
	settings := backends.Settings{Model: "id", Version: 1, Config: cfg}
	backendtest.Run(t, identity.NewFactory(), backends.Options{},
		backendtest.Fixture{
			Name: "pairs", Settings: settings, Rows: 2,
			In: []backendtest.Value{text, numbers}, Want: []backendtest.Value{numbers, text},
		},
		backendtest.Fixture{
			Name: "no elements", Settings: settings, Rows: 2,
			In: []backendtest.Value{text, none}, Want: []backendtest.Value{none, text},
		},
	)
}
