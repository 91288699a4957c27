package wasm_test

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/backendtest"
	"github.com/tutti-server/tutti/backends/wasm"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// exampleConfig returns the configuration of a model of the examples.
func exampleConfig(tb testing.TB, dir, model string) string {
	tb.Helper()
	text, err := os.ReadFile(filepath.Join(dir, model, "config.pbtxt"))
	if err != nil {
		tb.Fatal(err)
	}
	return string(text)
}

// simple returns the settings of the two-input model, with the module of a version folder.
func simple(tb testing.TB, dir string) backends.Settings {
	tb.Helper()
	return settings(tb, dir, exampleConfig(tb, exampleDir, "simple_wasm"))
}

// sentence returns the settings of the model with strings.
func sentence(tb testing.TB, dir string) backends.Settings {
	tb.Helper()
	return settings(tb, dir, exampleConfig(tb, forecastDir, "forecast_sentence"))
}

// TestContract runs the contract suite for backends.
func TestContract(t *testing.T) {
	t.Parallel()
	fp32 := func(list ...float32) backendtest.Value {
		return backendtest.Of(tensor.FP32, []int64{2, int64(len(list) / 2)}, list...)
	}
	labels := backendtest.Strings([]int64{2, 2}, "rain", "snow", "żółw", "")
	backendtest.Run(t, wasm.NewFactory(), options(), backendtest.Fixture{
		Name: "simple", Settings: simple(t, filepath.Join(exampleDir, "simple_wasm/1")), Rows: 2,
		In:   []backendtest.Value{fp32(1, 2, 3, 4), fp32(10, 20, 30, 0.5)},
		Want: []backendtest.Value{fp32(11, 22, 33, 4.5), fp32(-9, -18, -27, 3.5)},
		Bad: []backendtest.Bad{
			{Name: "shapes differ", In: []backendtest.Value{fp32(1, 2, 3, 4), fp32(1, 2)}, Code: status.InvalidArg},
			{Name: "absent input", In: []backendtest.Value{fp32(1, 2), {}}, Code: status.InvalidArg},
			{Name: "another type", In: []backendtest.Value{fp32(1, 2), labels}, Code: status.InvalidArg},
			{Name: "too few bytes", In: []backendtest.Value{fp32(1, 2), {DType: tensor.FP32, Dims: []int64{2, 1}, Data: []byte{1, 2, 3}}}, Code: status.InvalidArg},
			{Name: "huge shape", In: []backendtest.Value{fp32(1, 2), {DType: tensor.FP32, Dims: []int64{2, math.MaxInt64}}}, Code: status.InvalidArg},
		},
	}, backendtest.Fixture{
		Name: "strings", Settings: sentence(t, filepath.Join(forecastDir, "forecast_sentence/1")), Rows: 2,
		In:   []backendtest.Value{labels, fp32(0.5, 0.25, 1, 0)},
		Want: []backendtest.Value{backendtest.Strings([]int64{2, 1}, "rain (50 %) or snow (25 %)", "żółw")},
		Bad: []backendtest.Bad{
			{Name: "no shares", In: []backendtest.Value{labels, fp32(0.5, 2, math.MaxFloat32, 0)}, Code: status.InvalidArg},
			{Name: "cut strings", In: []backendtest.Value{{DType: tensor.Bytes, Dims: []int64{2, 2}, Data: labels.Data[:9]}, fp32(0, 0, 0, 0)}, Code: status.InvalidArg},
		},
	})
}

// guests are the modules of the examples: the files in them, and those that scripts/prepare-wasm compiles.
var guests = []struct{ name, simple, sentence string }{
	{"example", filepath.Join(exampleDir, "simple_wasm/1/model.wasm"), filepath.Join(forecastDir, "forecast_sentence/1/model.wasm")},
	{"go", "go-simple", "go-sentence"},
	{"rust", "rust-simple", "rust-sentence"},
	{"rust with WASI", "rust-wasi-simple", "rust-wasi-sentence"},
	{"c", "c-simple", ""},
}

// module returns a version folder with a module of guests.
func module(t *testing.T, name string) string {
	t.Helper()
	if name == "" {
		t.Skip("not written in this language")
	}
	if !strings.HasSuffix(name, ".wasm") {
		name = guest(t, name)
	}
	binary, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return written(t, binary)
}

// TestGuests runs the requests of the example on the modules of all languages.
func TestGuests(t *testing.T) {
	t.Parallel()
	var expected struct {
		Requests []struct {
			Name            string
			Inputs, Outputs []struct {
				Name  string
				Shape []int64
				Data  []float32
			}
		}
	}
	text, err := os.ReadFile(filepath.Join(exampleDir, "expected.json"))
	if err == nil {
		err = json.Unmarshal(text, &expected)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range guests {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			x := instanceOf(t, simple(t, module(t, g.simple)))
			for _, r := range expected.Requests {
				var in []backendtest.Value
				for _, p := range r.Inputs {
					in = append(in, backendtest.Of(tensor.FP32, p.Shape, p.Data...))
				}
				b := newBatch(t, 2, []int{int(r.Inputs[0].Shape[0])}, in...)
				if err := x.Execute(t.Context(), b); err != nil {
					t.Fatal(err)
				}
				for i, p := range r.Outputs {
					if diff := cmp.Diff(p.Data, tensor.Slice[float32](&b.Out[i])); diff != "" || !b.Out[i].Shape.Equal(tensor.Of(p.Shape...)) {
						t.Errorf("%s, %s of shape %s (-want +got):\n%s", r.Name, p.Name, b.Out[i].Shape, diff)
					}
				}
			}
		})
	}
}

// TestRowsFail checks that a module can fail one request of a batch, and that its text and code arrive.
func TestRowsFail(t *testing.T) {
	t.Parallel()
	for _, g := range guests {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			x := instanceOf(t, sentence(t, module(t, g.sentence)))
			b := newBatch(t, 1, []int{1, 1, 1}, backendtest.Strings([]int64{3, 2}, "a", "b", "c", "d", "e", "f"),
				backendtest.Of(tensor.FP32, []int64{3, 2}, float32(0.75), 0.25, 5, 0, 0.9, 0.1))
			if err := x.Execute(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			const want = "model 'm': expected shares from 0 to 1"
			if err := b.Requests[1].Err; err == nil || err.Error() != want || status.CodeOf(err) != status.InvalidArg {
				t.Errorf("request 1: %v, want %s", err, want)
			}
			if b.Requests[0].Err != nil || b.Requests[2].Err != nil {
				t.Errorf("the other requests: %v and %v", b.Requests[0].Err, b.Requests[2].Err)
			}
			if diff := cmp.Diff(backendtest.Strings([]int64{3, 1}, "a (75 %) or b (25 %)", "", "e"), backendtest.ValueOf(&b.Out[0])); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestParameters checks that a module gets its parameters and can refuse them.
func TestParameters(t *testing.T) {
	t.Parallel()
	for _, g := range guests {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			s := sentence(t, module(t, g.sentence))
			s.Config.Parameters["sure"].StringValue = "often"
			m, err := load(t, s)
			if err != nil {
				t.Fatal(err)
			}
			const want = "parameter 'sure' is 'often', expected 'sure' with a share"
			if _, err := m.NewInstance(t.Context(), tensor.Place{}); err == nil || !strings.HasSuffix(err.Error(), want) || status.CodeOf(err) != status.InvalidArg {
				t.Errorf("NewInstance: %v, want %s", err, want)
			}
		})
	}
}

// TestSizes checks that inputs of any size reach the module, up to its memory, and that it serves after one that does not fit.
func TestSizes(t *testing.T) {
	t.Parallel()
	for _, g := range guests {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			x := instanceOf(t, simple(t, module(t, g.simple)))
			for _, n := range []int{0, 1, 20_000, 3, 400_000, 7, 8_000_000, 5} {
				list := make([]float32, n)
				for i := range list {
					list[i] = float32(i)
				}
				v := backendtest.Of(tensor.FP32, []int64{1, int64(n)}, list...)
				b := newBatch(t, 2, []int{1}, v, v)
				err := x.Execute(t.Context(), b)
				if n == 8_000_000 {
					if err == nil || !strings.Contains(err.Error(), "16384 KiB (parameter memory_limit)") {
						t.Errorf("%d elements: %v", n, err)
					}
					continue
				}
				if err != nil {
					t.Fatalf("%d elements: %v", n, err)
				}
				sums := tensor.Slice[float32](&b.Out[0])
				for i := range list {
					if sums[i] != 2*list[i] {
						t.Fatalf("%d elements: element %d is %v", n, i, sums[i])
					}
				}
			}
		})
	}
}

// TestSandbox checks what a program of Go sees in a module: nothing.
func TestSandbox(t *testing.T) {
	t.Setenv("TUTTI_TEST_SANDBOX", "secret")
	x := instanceOf(t, settings(t, module(t, "go-probe"), `output { name: "SEEN" data_type: TYPE_STRING dims: [ -1 ] }`))
	b := newBatch(t, 1, []int{1})
	if err := x.Execute(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	var got []string
	for rest := b.Out[0].Bytes(); len(rest) > 0; {
		n := binary.LittleEndian.Uint32(rest)
		got, rest = append(got, string(rest[4:4+n])), rest[4+n:]
	}
	want := []string{"environment: 0", "arguments: 0", "input: 0 bytes", "/: refused", ".: refused", "/etc/passwd: refused", "write: refused", "network: refused", "random: differs", "slept: true"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
