package remote_test

import (
	"bytes"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/backendtest"
	"github.com/tutti-server/tutti/backends/remote"
	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

func parse(t *testing.T, text string) *modelconfig.ModelConfig {
	t.Helper()
	cfg := &modelconfig.ModelConfig{}
	if err := prototext.Unmarshal([]byte(text), cfg); err != nil {
		t.Fatal(err)
	}
	return cfg
}

// TestContract runs the contract suite for backends with a far server on a socket.
func TestContract(t *testing.T) {
	t.Parallel()
	far := start(t, nil, map[string]string{"id": identityConfig, "flow": `
		backend: "repeat"
		model_transaction_policy { decoupled: true }
		input [ { name: "IN", data_type: TYPE_INT32, dims: [ -1 ] }, { name: "DELAY", data_type: TYPE_UINT32, dims: [ -1 ] }, { name: "WAIT", data_type: TYPE_UINT32, dims: [ 1 ] } ]
		output [ { name: "OUT", data_type: TYPE_INT32, dims: [ 1 ] }, { name: "IDX", data_type: TYPE_UINT32, dims: [ 1 ] } ]`})
	settings := func(name string) backends.Settings {
		return backends.Settings{Model: name, Version: 1, Config: parse(t, `name: "`+name+`" `+to(far.GRPCAddress(), ""))}
	}
	text := backendtest.Strings([]int64{2, 1}, "one", "")
	numbers := backendtest.Of(tensor.FP32, []int64{2, 2}, float32(1), 2, 3, 4)
	none := backendtest.Of[float32](tensor.FP32, []int64{2, 0})
	backendtest.Run(t, remote.NewFactory(), backends.Options{},
		backendtest.Fixture{
			Name: "pairs", Settings: settings("id"), Rows: 2,
			In: []backendtest.Value{numbers, text}, Want: []backendtest.Value{numbers, text},
			Bad: []backendtest.Bad{{Name: "no text", In: []backendtest.Value{numbers, {}}}},
		},
		backendtest.Fixture{
			Name: "no elements", Settings: settings("id"), Rows: 2,
			In: []backendtest.Value{none, text}, Want: []backendtest.Value{none, text},
		},
		backendtest.Fixture{
			Name: "decoupled", Settings: settings("flow"),
			In: []backendtest.Value{
				backendtest.Of(tensor.Int32, []int64{2}, int32(5), 6), backendtest.Of(tensor.Uint32, []int64{2}, uint32(0), 0),
				backendtest.Of(tensor.Uint32, []int64{1}, uint32(0)),
			},
			Want: []backendtest.Value{backendtest.Of(tensor.Int32, []int64{1}, int32(6)), backendtest.Of(tensor.Uint32, []int64{1}, uint32(1))},
		},
	)
}

// ensembleConfig chains a remote model with one of this server.
const ensembleConfig = `
platform: "ensemble"
max_batch_size: 8
input [ { name: "A", data_type: TYPE_FP32, dims: [ -1 ] }, { name: "B", data_type: TYPE_STRING, dims: [ 1 ] } ]
output [ { name: "C", data_type: TYPE_FP32, dims: [ -1 ] }, { name: "D", data_type: TYPE_STRING, dims: [ 1 ] } ]
ensemble_scheduling {
  step { model_name: "far", input_map [ { key: "INPUT0", value: "A" }, { key: "INPUT1", value: "B" } ]
         output_map [ { key: "OUTPUT0", value: "a" }, { key: "OUTPUT1", value: "b" } ] }
  step { model_name: "id", input_map [ { key: "INPUT0", value: "a" }, { key: "INPUT1", value: "b" } ]
         output_map [ { key: "OUTPUT0", value: "C" }, { key: "OUTPUT1", value: "D" } ] }
}`

// TestEnsemble sends tensors of several sizes through an ensemble with a remote step, by 8 clients at a time and over both
// protocols. Larger ones are sent from their buffers.
// shows: remote.ensemble
func TestEnsemble(t *testing.T) {
	t.Parallel()
	far := start(t, nil, map[string]string{"id": identityConfig})
	for _, params := range [][]string{nil, {"connections=3"}, {"compression=gzip"}} {
		t.Run(strings.Join(params, ","), func(t *testing.T) {
			t.Parallel()
			near := start(t, nil, map[string]string{
				"far": to(far.GRPCAddress(), "dynamic_batching { }", append(params, "remote_model=id")...), "id": identityConfig, "chain": ensembleConfig,
			})
			for name, c := range dial(t, near) {
				var all sync.WaitGroup
				for k := range 8 {
					all.Go(func() {
						for _, n := range []int64{0, 1, 3000, 40_000} {
							sendChain(t, name, c, int64(k%2+1), n)
						}
					})
				}
				all.Wait()
			}
		})
	}
}

func sendChain(t *testing.T, name string, c client.Client, rows, n int64) {
	t.Helper()
	values := make([]float32, rows*n)
	for i := range values {
		values[i] = float32(i)
	}
	texts := slices.Repeat([]string{"text", ""}, 4)[:rows]
	numbers, text := client.Of("A", []int64{rows, n}, values...), client.Text("B", []int64{rows, 1}, texts...)
	resp, err := c.Infer(t.Context(), &client.Request{Model: "chain", Inputs: []client.Tensor{numbers, text}})
	if err != nil {
		t.Errorf("%s, %d rows of %d: %v", name, rows, n, err)
		return
	}
	if out := resp.Output("C"); out == nil || !bytes.Equal(out.Data, numbers.Data) || !slices.Equal(out.Shape, numbers.Shape) {
		t.Errorf("%s, %d rows of %d: other numbers came back", name, rows, n)
	}
	if out := resp.Output("D"); out == nil || !bytes.Equal(out.Data, text.Data) {
		t.Errorf("%s, %d rows of %d: other texts came back", name, rows, n)
	}
}

// TestTyped checks that the graph knows the far model: metadata and configuration of a model without inputs and outputs in its
// file are those of the far one.
func TestTyped(t *testing.T) {
	t.Parallel()
	far := start(t, nil, map[string]string{"id": identityConfig})
	near := start(t, nil, map[string]string{"id": to("dns:///"+far.GRPCAddress(), "")})
	for name, c := range dial(t, near) {
		want, err := dial(t, far)[name].Metadata(t.Context(), "id")
		if err != nil {
			t.Fatal(err)
		}
		got, err := c.Metadata(t.Context(), "id")
		if err != nil || !slices.EqualFunc(got.Inputs, want.Inputs, func(a, b infer.TensorMetadata) bool { return cmp.Equal(a, b) }) || !slices.EqualFunc(got.Outputs, want.Outputs, func(a, b infer.TensorMetadata) bool { return cmp.Equal(a, b) }) {
			t.Errorf("%s: metadata %+v (%v), want %+v", name, got, err, want)
		}
		cfg, err := c.Config(t.Context(), "id")
		if err != nil || cfg.GetMaxBatchSize() != 8 || len(cfg.GetInput()) != 2 {
			t.Errorf("%s: configuration %v (%v)", name, cfg, err)
		}
	}
}
