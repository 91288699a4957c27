package wasm_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/backendtest"
	"github.com/tutti-server/tutti/backends/wasm"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/preparedtest"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// The folders of the examples.
const (
	exampleDir  = "../../examples/backends/wasm"
	forecastDir = "../../examples/ensembles/forecast"
)

// onePort is a configuration with an input and an output of type INT32.
const onePort = `max_batch_size: 4
	input { name: "IN" data_type: TYPE_INT32 dims: [ -1 ] } output { name: "OUT" data_type: TYPE_INT32 dims: [ 2 ] }`

// parse reads a configuration.
func parse(tb testing.TB, pbtxt string) *modelconfig.ModelConfig {
	tb.Helper()
	cfg := &modelconfig.ModelConfig{}
	if err := prototext.Unmarshal([]byte(pbtxt), cfg); err != nil {
		tb.Fatal(err)
	}
	return cfg
}

// parameter returns a parameter as text of a configuration.
func parameter(key, value string) string {
	return ` parameters { key: "` + key + `" value { string_value: "` + value + `" } }`
}

// settings returns the settings of a model in a version folder.
func settings(tb testing.TB, dir, pbtxt string) backends.Settings {
	tb.Helper()
	return backends.Settings{
		Model: "m", Version: 1, Dir: dir, ModelDir: filepath.Dir(dir), Config: parse(tb, pbtxt),
		Instances: 1, Alloc: tensor.NewPool(), Log: slog.New(slog.DiscardHandler),
	}
}

// written returns a version folder with a module.
func written(tb testing.TB, module []byte) string {
	tb.Helper()
	dir := tb.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "model.wasm"), module, 0o600); err != nil {
		tb.Fatal(err)
	}
	return dir
}

// cacheDir is a folder for the modules that the tests compile: several use the same ones.
var cacheDir string

func TestMain(m *testing.M) {
	os.Exit(func() int { //nolint:forbidigo // the folder is removed first
		dir, err := os.MkdirTemp("", "wasm")
		if err != nil {
			panic(err)
		}
		defer func() { _ = os.RemoveAll(dir) }()
		cacheDir = dir
		return m.Run()
	}())
}

// options have the setting of the backend.
func options() backends.Options {
	return backends.Options{Config: map[string]string{"cache-directory": cacheDir}}
}

// openBackend opens the backend.
func openBackend(tb testing.TB) backends.Backend {
	tb.Helper()
	b, err := wasm.NewFactory().New(options())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = b.Close() })
	return b
}

// load loads a model and closes it with the test.
func load(tb testing.TB, s backends.Settings) (backends.Model, error) {
	tb.Helper()
	b := openBackend(tb)
	m, err := b.Load(tb.Context(), s)
	if err == nil {
		tb.Cleanup(func() { _ = m.Close() })
	}
	return m, err
}

// instanceOf returns an instance of a model.
func instanceOf(tb testing.TB, s backends.Settings) backends.Instance {
	tb.Helper()
	m, err := load(tb, s)
	if err != nil {
		tb.Fatal(err)
	}
	x, err := m.NewInstance(tb.Context(), tensor.Place{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = x.Close() })
	return x
}

// newBatch returns a batch of one request for each number of rows.
func newBatch(tb testing.TB, outs int, rows []int, in ...backendtest.Value) *backends.Batch {
	tb.Helper()
	pool := tensor.NewPool()
	b := &backends.Batch{Out: make([]tensor.Tensor, outs), Allocator: pool}
	for _, n := range rows {
		b.Requests = append(b.Requests, backends.Request{Ctx: tb.Context(), First: b.Rows, Rows: n})
		b.Rows += n
	}
	for _, v := range in {
		b.In = append(b.In, v.Tensor(tb, pool))
	}
	tb.Cleanup(func() {
		tensor.ReleaseAll(b.In)
		tensor.ReleaseAll(b.Out)
	})
	return b
}

// numbers returns an input of one row of INT32.
func numbers(list ...int32) backendtest.Value {
	return backendtest.Of(tensor.Int32, []int64{1, int64(len(list))}, list...)
}

// once executes a batch of one row and returns the output.
func once(tb testing.TB, ctx context.Context, x backends.Instance, in backendtest.Value) ([]int32, error) { //nolint:revive // tb comes first in all helpers
	tb.Helper()
	b := newBatch(tb, 1, []int{1}, in)
	if err := x.Execute(ctx, b); err != nil {
		return nil, err
	}
	if err := b.Requests[0].Err; err != nil {
		return nil, err
	}
	return slices.Clone(tensor.Slice[int32](&b.Out[0])), nil
}

// guest returns the path of a module that scripts/prepare-wasm compiled.
func guest(tb testing.TB, name string) string {
	tb.Helper()
	dir := preparedtest.Script(tb, "WASM", "prepare-wasm")
	path := filepath.Join(dir, name+".wasm")
	if _, err := os.Stat(path); err != nil {
		tb.Skipf("no compiler for %s was there when scripts/prepare-wasm ran", name)
	}
	return path
}
