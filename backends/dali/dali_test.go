package dali_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/backendtest"
	"github.com/tutti-server/tutti/backends/dali"
	"github.com/tutti-server/tutti/backends/python"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/preparedtest"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

func factory() backends.Factory { return dali.NewFactory(python.NewFactory()) }

// options returns options with the fetched environment. It skips the test if there is none.
func options(tb testing.TB) backends.Options {
	tb.Helper()
	return backends.Options{
		Log:    slog.New(slog.DiscardHandler),
		Config: map[string]string{"python-runtime": preparedtest.Runtime(tb, "dali")},
		Others: map[string]map[string]string{"python": {"stub-timeout-seconds": "600"}},
	}
}

// open returns the open backend. The test closes it.
func open(tb testing.TB) backends.Backend {
	tb.Helper()
	b, err := factory().New(options(tb))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := b.Close(); err != nil {
			tb.Error(err)
		}
	})
	return b
}

// settings returns the settings of a model with files by name, and the configuration of a text.
func settings(tb testing.TB, files map[string]string, pbtxt string) backends.Settings {
	tb.Helper()
	dir := tb.TempDir()
	cfg := &modelconfig.ModelConfig{}
	if err := prototext.Unmarshal([]byte(pbtxt), cfg); err != nil {
		tb.Fatal(err)
	}
	cfg.Backend = "dali"
	if err := config.Normalise(cfg, "m"); err != nil {
		tb.Fatal(err)
	}
	version := filepath.Join(dir, "3")
	if err := os.Mkdir(version, 0o700); err != nil {
		tb.Fatal(err)
	}
	for file, text := range files {
		if err := os.WriteFile(filepath.Join(version, file), []byte(text), 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "config.pbtxt"), []byte(pbtxt), 0o600); err != nil {
		tb.Fatal(err)
	}
	return backends.Settings{
		Model: "m", Version: 3, ModelDir: dir, Dir: version, Config: cfg, Instances: 1, Alloc: tensor.NewPool(), Log: slog.New(slog.DiscardHandler),
	}
}

// serialized returns the files of a model with a pipeline of testdata.
func serialized(tb testing.TB, pipeline string) map[string]string {
	tb.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", pipeline+".dali"))
	if err != nil {
		tb.Fatal(err)
	}
	return map[string]string{"model.dali": string(data)}
}

// definition returns the files of a model that is written in Python.
func definition(body, arguments string) map[string]string {
	return map[string]string{"dali.py": `import nvidia.dali as dali
from nvidia.dali import fn, types
from nvidia.dali.plugin.triton import autoserialize

@autoserialize
@dali.pipeline_def(batch_size=5, num_threads=1, device_id=0` + arguments + `)
def pipe():
` + body}
}

const bytesInOut = `max_batch_size: 4 input { name: "DALI_INPUT_0" data_type: TYPE_UINT8 dims: -1 } output { name: "OUT" data_type: TYPE_UINT8 dims: -1 }`

func uint8s(dims []int64, elems ...uint8) backendtest.Value {
	return backendtest.Of(tensor.Uint8, dims, elems...)
}

func fp32(dims []int64, elems ...float32) backendtest.Value {
	return backendtest.Of(tensor.FP32, dims, elems...)
}

func int32s(dims []int64, elems ...int32) backendtest.Value {
	return backendtest.Of(tensor.Int32, dims, elems...)
}

// TestContract runs the contract suite for backends.
// shows: backends.dali
func TestContract(t *testing.T) {
	t.Parallel()
	ab := []backendtest.Value{fp32([]int64{2, 2}, 1, 2, 3, 4), int32s([]int64{2, 1}, 5, 6)}
	doubled := []backendtest.Value{fp32([]int64{2, 2}, 2, 4, 6, 8), fp32([]int64{2, 1}, 15, 18)}
	backendtest.Run(t, factory(), options(t),
		backendtest.Fixture{
			Name: "identity", Rows: 2, Settings: settings(t, serialized(t, "identity"), bytesInOut),
			In: []backendtest.Value{uint8s([]int64{2, 3}, 1, 2, 3, 4, 5, 6)}, Want: []backendtest.Value{uint8s([]int64{2, 3}, 1, 2, 3, 4, 5, 6)},
			Bad: []backendtest.Bad{
				{Name: "dtype", In: []backendtest.Value{int32s([]int64{2, 3}, 1, 2, 3, 4, 5, 6)}, Code: status.InvalidArg},
				{Name: "rank", In: []backendtest.Value{uint8s([]int64{2}, 1, 2)}, Code: status.InvalidArg},
			},
		},
		backendtest.Fixture{
			Name: "unbatched", Settings: settings(t, serialized(t, "unbatched"), "max_batch_size: 0"), In: ab, Want: doubled,
			Bad: []backendtest.Bad{{Name: "batches", In: []backendtest.Value{ab[0], int32s([]int64{1, 2}, 5, 6)}}},
		},
	)
}

// TestMissing checks that a server without DALI says how to get it, for a missing interpreter and for one without the package.
func TestMissing(t *testing.T) {
	t.Parallel()
	for name, python := range map[string]string{"none": filepath.Join(t.TempDir(), "python"), "without DALI": "python3"} {
		_, err := factory().New(backends.Options{Config: map[string]string{"python-runtime": python}})
		if status.CodeOf(err) != status.Unavailable || !strings.Contains(err.Error(), "tutti runtime fetch dali") {
			t.Errorf("%s: New = %v, want it unavailable with the command", name, err)
		}
	}
	if _, err := factory().New(backends.Options{Config: map[string]string{"release_after_unload": "perhaps"}}); status.CodeOf(err) != status.InvalidArg {
		t.Errorf("New = %v, want the setting refused", err)
	}
}
