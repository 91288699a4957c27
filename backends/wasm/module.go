package wasm

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/bind"
	"github.com/tutti-server/tutti/backends/wasm/meter"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/recovery"
)

// The exports of a module.
const (
	exportMemory     = "memory"
	exportVersion    = "tutti_abi_version"
	exportBuffer     = "tutti_buffer"
	exportExecute    = "tutti_execute"
	exportInitialize = "tutti_initialize" // optional
)

// abiVersion is the version of the interface that this package implements.
const abiVersion = 1

// maxFile is the largest module file in bytes.
const maxFile = 256 << 20

// export is a function that a module must have.
type export struct {
	name    string
	params  int // of type i32
	results int // of type i32
	needed  bool
}

// exports lists the functions of the interface.
var exports = []export{
	{name: exportVersion, results: 1, needed: true},
	{name: exportBuffer, params: 1, results: 1, needed: true},
	{name: exportExecute, params: 2, results: 1, needed: true},
	{name: exportInitialize, params: 2, results: 1},
}

// model is a compiled module.
type model struct {
	backends.Ports
	settings backends.Settings
	limits   limits
	params   []string // the keys of the parameters for the module
	runtime  wazero.Runtime
	compiled wazero.CompiledModule
}

var _ backends.Model = (*model)(nil)

// newModel checks the configuration.
func newModel(s *backends.Settings, l limits) (*model, error) {
	cfg := s.Config
	switch {
	case len(cfg.GetOutput()) == 0:
		return nil, config.WithFix(config.Errorf(config.Mismatch, "output", "unable to load model '%s': a WebAssembly module does not say what its inputs and outputs are, expected them in the configuration", s.Model),
			"declare every input and output")
	case cfg.GetModelTransactionPolicy().GetDecoupled():
		return nil, status.Errorf(status.Unsupported, "unable to load model '%s': backend 'wasm' has one response for each request, expected a model that is not decoupled", s.Model)
	}
	sig := config.ModelOf(config.SignatureOf(cfg))
	sig.Model, sig.Version = s.Model, s.Version
	return &model{Ports: backends.Ports{Sig: sig}, settings: *s, limits: l, params: guestParams(s)}, nil
}

// compile reads, meters, compiles and checks the module of a file.
func (m *model) compile(ctx context.Context, cache wazero.CompilationCache, path string) (err error) {
	defer recovery.Error(&err, m.settings.Log, "compiling a WebAssembly module")
	binary, err := readModule(path)
	if err != nil {
		return err
	}
	m.runtime = wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().WithCompilationCache(cache).
		WithCoreFeatures(api.CoreFeaturesV2).WithMemoryLimitPages(m.limits.pages).WithDebugInfoEnabled(false))
	if m.compiled, err = m.runtime.CompileModule(ctx, binary); err != nil {
		return status.Errorf(status.InvalidArg, "the module is not valid, or needs more memory than %s: %w", m.limits.memory(), err)
	}
	if err := m.checkImports(); err != nil {
		return err
	}
	if err := m.checkExports(); err != nil {
		return err
	}
	if len(m.params) > 0 && m.compiled.ExportedFunctions()[exportInitialize] == nil {
		m.settings.Log.WarnContext(ctx, "parameters are not used: the module does not export "+exportInitialize, slog.String("model", m.Sig.Model), slog.Any("parameters", m.params))
	}
	if _, err := wasi_snapshot_preview1.Instantiate(ctx, m.runtime); err != nil {
		return err
	}
	_, err = m.runtime.NewHostModuleBuilder(meter.Module).NewFunctionBuilder().
		WithGoModuleFunction(api.GoModuleFunc(refuel), nil, []api.ValueType{api.ValueTypeI64}).Export(meter.Function).Instantiate(ctx)
	return err
}

// readModule returns the metered module of a file.
func readModule(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err == nil && info.Size() > maxFile {
		return nil, status.Errorf(status.InvalidArg, "the file has %d bytes, expected at most %d", info.Size(), maxFile)
	}
	binary, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	metered, err := meter.Add(binary)
	if err != nil {
		return nil, bind.UnreadableFile(status.Errorf(status.InvalidArg, "%w", err), "a WebAssembly module", path)
	}
	return metered, nil
}

// checkImports refuses a module that imports anything but functions of WASI.
func (m *model) checkImports() error {
	for _, f := range m.compiled.ImportedFunctions() {
		module, name, _ := f.Import()
		if module != wasi_snapshot_preview1.ModuleName && (module != meter.Module || name != meter.Function) {
			return status.Errorf(status.InvalidArg, "the module imports the function '%s' of '%s', expected imports of '%s' only", name, module, wasi_snapshot_preview1.ModuleName)
		}
	}
	if list := m.compiled.ImportedMemories(); len(list) > 0 {
		module, name, _ := list[0].Import()
		return status.Errorf(status.InvalidArg, "the module imports the memory '%s' of '%s', expected it to export its own as '%s'", name, module, exportMemory)
	}
	return nil
}

// checkExports refuses a module without the functions of the interface.
func (m *model) checkExports() error {
	if m.compiled.ExportedMemories()[exportMemory] == nil {
		return status.Errorf(status.InvalidArg, "the module exports no memory '%s'", exportMemory)
	}
	found := m.compiled.ExportedFunctions()
	for _, e := range exports {
		f := found[e.name]
		want := signatureText(slices.Repeat([]api.ValueType{api.ValueTypeI32}, e.params), slices.Repeat([]api.ValueType{api.ValueTypeI32}, e.results))
		if f == nil && e.needed {
			return status.Errorf(status.InvalidArg, "the module exports no function '%s' %s, which docs/wasm.md describes", e.name, want)
		}
		if f != nil && signatureText(f.ParamTypes(), f.ResultTypes()) != want {
			return status.Errorf(status.InvalidArg, "the module exports the function '%s' %s, expected %s", e.name, signatureText(f.ParamTypes(), f.ResultTypes()), want)
		}
	}
	return nil
}

// signatureText formats the types of a function: "(i32, i32) -> i32".
func signatureText(params, results []api.ValueType) string {
	list := func(types []api.ValueType) string {
		names := make([]string, len(types))
		for i, t := range types {
			names[i] = api.ValueTypeName(t)
		}
		return strings.Join(names, ", ")
	}
	text := "(" + list(params) + ")"
	if len(results) > 0 {
		text += " -> " + list(results)
	}
	return text
}

// NewInstance returns an executor on the host, with a module instance.
func (m *model) NewInstance(ctx context.Context, at tensor.Place) (backends.Instance, error) {
	if err := bind.CheckHost("wasm", m.Sig.Model, at); err != nil {
		return nil, err
	}
	x := newInstance(m)
	if err := x.start(ctx); err != nil {
		_ = x.Close()
		return nil, err
	}
	return x, nil
}

// Close frees the module.
func (m *model) Close() error {
	if m.runtime == nil {
		return nil
	}
	ctx := context.Background()
	if m.compiled != nil {
		_ = m.compiled.Close(ctx) // it only forgets the code
	}
	err := m.runtime.Close(ctx)
	m.runtime = nil
	return err
}
