//go:build cgo

package tritonlib_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/backendtest"
	"github.com/tutti-server/tutti/backends/tritonlib"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
)

// TestPage checks that the page lists the calls that are provided, and no others.
func TestPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "triton-backends.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "| calls about | notes | calls |")
	table, _, _ = strings.Cut(table, "\n\n")
	listed := regexp.MustCompile(`TRITON(BACKEND|SERVER)_\w+`).FindAllString(table, -1)
	slices.Sort(listed)
	want := tritonlib.Calls()
	slices.Sort(want)
	if diff := cmp.Diff(want, listed); diff != "" {
		t.Errorf("docs/triton-backends.md (-provided +listed):\n%s", diff)
	}
}

// FuzzCheckLibrary checks that no file makes the check of libraries fail otherwise than by an error.
func FuzzCheckLibrary(f *testing.F) {
	for _, name := range []string{"addsub", "caller"} {
		data, err := os.ReadFile(library(f, name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte("\x7fELF"))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "libtriton_x.so")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		_ = tritonlib.CheckLibrary(path)
	})
}

// nvidia names the folder that scripts/prepare-triton-cpp prints, with libraries that were compiled from NVIDIA's sources, which no package
// registry has: NAME/libtriton_NAME.so of the backends identity, repeat, square and onnxruntime.
const nvidia = "TUTTI_TEST_TRITON_NVIDIA"

// TestNVIDIA runs the contract suite with NVIDIA's own backends.
func TestNVIDIA(t *testing.T) {
	t.Parallel()
	dir := os.Getenv(nvidia)
	if dir == "" {
		t.Skipf("%s names no folder with NVIDIA's libraries", nvidia)
	}
	load := func(backend, text string) backends.Settings {
		s := settings(t, "probe", integers)
		cfg, err := config.Parse("config.pbtxt", []byte(`name: "m" backend: "`+backend+`" `+text))
		if err != nil {
			t.Fatal(err)
		}
		s.Config = cfg
		return s
	}
	texts := backendtest.Strings([]int64{2, 2}, "", "a", "bc", strings.Repeat("d", 3000))
	fixtures := []backendtest.Fixture{
		{
			Name: "identity", Settings: load("identity", "max_batch_size: 8 input ["+port("INPUT0", "TYPE_STRING", "-1")+"] output ["+port("OUTPUT0", "TYPE_STRING", "-1")+"]"), Rows: 2,
			In: []backendtest.Value{texts}, Want: []backendtest.Value{texts},
		},
		{
			Name: "repeat", Settings: load("repeat", "model_transaction_policy { decoupled: true } input ["+port("IN", "TYPE_INT32", "-1")+","+port("DELAY", "TYPE_UINT32", "-1")+","+port("WAIT", "TYPE_UINT32", "1")+"] output ["+port("OUT", "TYPE_INT32", "1")+","+port("IDX", "TYPE_UINT32", "1")+"]"),
			In:   []backendtest.Value{int32s([]int64{3}, 4, 2, 9), backendtest.Of(tensor.Uint32, []int64{3}, uint32(0), 1, 0), backendtest.Of(tensor.Uint32, []int64{1}, uint32(1))},
			Want: []backendtest.Value{int32s([]int64{1}, 9), backendtest.Of(tensor.Uint32, []int64{1}, uint32(2))},
		},
		{
			Name: "square", Settings: load("square", "model_transaction_policy { decoupled: true } input ["+port("IN", "TYPE_INT32", "1")+"] output ["+port("OUT", "TYPE_INT32", "1")+"]"),
			In: []backendtest.Value{int32s([]int64{1}, 3)}, Want: []backendtest.Value{int32s([]int64{1}, 3)},
		},
	}
	if _, err := os.Stat(filepath.Join(dir, "onnxruntime")); err == nil { // its configuration has no ports: the library completes them
		x := load("onnxruntime", "")
		x.ModelDir = filepath.Join("..", "..", "examples", "backends", "onnx", "simple_onnx")
		x.Dir = filepath.Join(x.ModelDir, "1")
		fixtures = append(fixtures, backendtest.Fixture{
			Name: "onnxruntime", Settings: x, In: []backendtest.Value{backendtest.Of[int64](tensor.Int64, []int64{1, 3}, 0, 7, 99), fp32([]int64{1, 4}, 1, 2, 3, 4)},
		})
	}
	backendtest.Run(t, tritonlib.NewFactory(), backends.Options{Config: map[string]string{backends.KeyDirectory: dir}}, fixtures...)
}
