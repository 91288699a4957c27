package wasm_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/wasm"
	w "github.com/tutti-server/tutti/backends/wasm/wasmtest"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// loadError returns the error of loading a module and starting an instance.
func loadError(t *testing.T, module []byte, pbtxt string) error {
	t.Helper()
	m, err := load(t, settings(t, written(t, module), pbtxt))
	if err != nil {
		return err
	}
	x, err := m.NewInstance(t.Context(), tensor.Place{})
	if err == nil {
		_ = x.Close()
	}
	return err
}

// TestLoadRefuses checks the errors for modules and configurations that cannot be served.
func TestLoadRefuses(t *testing.T) {
	t.Parallel()
	module := func(m w.Module) []byte { return m.Bytes() }
	whole := module(w.Module{})
	tests := map[string]struct {
		module        []byte
		pbtxt, expect string
	}{
		"empty":           {nil, onePort, "expected a WebAssembly module, which begins with the bytes 0, 'asm' (expected a WebAssembly module, found an empty file)"},
		"text":            {[]byte("(module)"), onePort, `found 8 bytes that begin with "(module)"`},
		"git lfs":         {[]byte("version https://git-lfs.github.com/spec/v1\n"), onePort, "found a pointer of Git LFS of 43 bytes"},
		"component":       {[]byte("\x00asm\x0d\x00\x01\x00"), onePort, "expected a core module, found a component: compile for wasm32-wasip1 or wasm32-unknown-unknown"},
		"version":         {[]byte("\x00asm\x02\x00\x00\x00"), onePort, "expected version 1 of the binary format, found 02 00 00 00"},
		"truncated":       {whole[:len(whole)-20], onePort, ": expected "},
		"no execute":      {module(w.Module{Without: []string{"tutti_execute"}}), onePort, "the module exports no function 'tutti_execute' (i32, i32) -> i32, which docs/wasm.md describes"},
		"no memory":       {module(w.Module{Without: []string{"memory"}}), onePort, "the module exports no memory 'memory'"},
		"import":          {module(w.Module{Imports: []w.Import{{Module: "env", Name: "abort"}}}), onePort, "the module imports the function 'abort' of 'env', expected imports of 'wasi_snapshot_preview1' only"},
		"the meter":       {module(w.Module{Imports: []w.Import{{Module: "tutti", Name: "refuel", Results: 1}}}), onePort, "tutti"},
		"an old version":  {module(w.Module{Version: w.I32(2)}), onePort, "the module has version 2 of the interface, expected version 1"},
		"large memory":    {module(w.Module{Pages: 17}), onePort + parameter("memory_limit", "1MiB"), "needs more memory than 1024 KiB (parameter memory_limit)"},
		"a trap at start": {module(w.Module{Start: []byte{w.Unreachable}}), onePort, "unable to start the module: model 'm': the module trapped: start function[4] failed: wasm error: unreachable"},
		"a loop at start": {module(w.Module{Start: forever}), onePort + parameter("time_limit", "50ms"), "unable to start the module: model 'm': the module ran for more than 50ms"},
		"growing table":   {module(w.Module{Table: 1, Execute: w.Join([]byte{0xd0, 0x70}, w.I32(1), []byte{w.Misc, 15, 0, w.Drop}, w.I32(0))}), onePort, "table.grow is not supported: a table that grows has no limit"},
		"large table":     {module(w.Module{Table: 1<<20 + 1}), onePort, "expected a table of at most 1048576 elements, found 1048577"},
		"the fuel":        {module(w.Module{Execute: w.Join(w.Op(w.GlobalGet, 0), []byte{w.Drop}, w.I32(0))}), onePort, "expected one of 0 globals, found global 0"},
		"unknown code":    {module(w.Module{Execute: []byte{0xfe, 0, 0, 0}}), onePort, "instruction 0xfe is not supported, expected one of WebAssembly 2.0"},
		"not valid":       {module(w.Module{Execute: []byte{w.I32Add}}), onePort, "the module is not valid, or needs more memory"},
		"refused":         {module(w.Module{Initialize: w.I32(w.ResponseAt), Data: []w.Data{{At: w.ResponseAt, Bytes: w.Response(w.ResponseAt, nil, []w.Failure{{Row: -1, Code: 3, Text: "no"}})}}}), onePort, "unable to start the module: model 'm': no"},
		"time":            {whole, onePort + parameter("time_limit", "fast"), "unexpected value 'fast' of parameter 'time_limit': expected a duration like 500ms or 2s, or 0 for no limit"},
		"negative time":   {whole, onePort + parameter("time_limit", "-1s"), "unexpected value '-1s' of parameter 'time_limit'"},
		"fuel":            {whole, onePort + parameter("fuel_limit", "1e6"), "unexpected value '1e6' of parameter 'fuel_limit': expected a number of instructions"},
		"memory":          {whole, onePort + parameter("memory_limit", "64MB"), "unexpected value '64MB' of parameter 'memory_limit': expected a size from 64KiB to 4194240KiB, like 64MiB"},
		"too much memory": {whole, onePort + parameter("memory_limit", "4GiB"), "unexpected value '4GiB' of parameter 'memory_limit'"},
		"overflow":        {whole, onePort + parameter("memory_limit", "17179869184GiB"), "unexpected value '17179869184GiB'"},
		"no output":       {whole, `input { name: "IN" data_type: TYPE_INT32 dims: [ 1 ] }`, "a WebAssembly module does not say what its inputs and outputs are, expected them in the configuration"},
		"decoupled":       {whole, onePort + " model_transaction_policy { decoupled: true }", "expected a model that is not decoupled"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := loadError(t, tt.module, tt.pbtxt)
			if err == nil || !strings.Contains(err.Error(), tt.expect) {
				t.Errorf("%v, want %s", err, tt.expect)
			}
		})
	}
}

// TestTruncated checks that no prefix of a module, and no module with a changed byte, does harm. One prefix is a module: that without
// the data, which come last.
func TestTruncated(t *testing.T) {
	t.Parallel()
	m := w.Module{Globals: 1, Table: 2, Execute: second([]byte{w.Unreachable}), Data: data()}
	whole := m.Bytes()
	m.Data = nil
	code := len(m.Bytes()) - len("\x0b\x01\x00") // an empty section of data
	for n := range whole {
		if err := loadError(t, whole[:n], onePort); err == nil && n != code {
			t.Errorf("a module of %d bytes instead of %d was loaded", n, len(whole))
		}
		changed := append([]byte(nil), whole...)
		changed[n] ^= 0x81
		_ = loadError(t, changed, onePort+parameter("time_limit", "1s")+parameter("memory_limit", "2MiB"))
	}
}

// TestDevice checks that instances are on the host.
func TestDevice(t *testing.T) {
	t.Parallel()
	m, err := load(t, settings(t, written(t, (&w.Module{}).Bytes()), onePort))
	if err != nil {
		t.Fatal(err)
	}
	const want = "model 'm': wasm on device:0 is not supported"
	if _, err := m.NewInstance(t.Context(), tensor.Place{Kind: tensor.Device}); status.CodeOf(err) != status.Unsupported || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestCacheDirectory checks that compiled modules are kept, and the error for a folder that cannot be used.
func TestCacheDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	open := func(dir string) (backends.Backend, error) {
		return wasm.NewFactory().New(backends.Options{Config: map[string]string{"cache-directory": dir}})
	}
	b, err := open(dir)
	if err != nil {
		t.Fatal(err)
	}
	m, err := b.Load(t.Context(), settings(t, written(t, (&w.Module{}).Bytes()), onePort))
	if err != nil {
		t.Fatal(err)
	}
	_, _ = m.Close(), b.Close()
	if found, err := filepath.Glob(filepath.Join(dir, "*", "*")); err != nil || len(found) == 0 {
		t.Errorf("nothing in the folder: %v", err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := open(file); err == nil || !strings.Contains(err.Error(), "of wasm setting 'cache-directory': expected a folder to write to") {
		t.Errorf("a file as the folder: %v", err)
	}
}
