// Package wasm is the backend of WebAssembly modules: it runs a model.wasm in the server's process, with limits of time and of
// memory, and without access to files, the network or the environment. docs/wasm.md describes the interface of modules.
//
//	wasm.go      the factory and the backend, parameters of config.pbtxt
//	module.go    a loaded module: what it imports and exports
//	instance.go  executions
//	limits.go    how an execution ends early
//	guest.go     the interface in the memory of a module: requests and responses
//	output.go    what a module prints
//	meter        counts the instructions of a module
//
// Each instance of a model has a module instance with its own memory; they share the compiled code. The inputs of a batch are
// copied to that memory, and the outputs from it: there are no other copies.
//
// A module may do anything that its sandbox allows. An execution that traps, exits, runs too long or returns what the interface
// does not allow fails its batch, and the next one has a new module instance.
package wasm

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tetratelabs/wazero"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/bind"
	"github.com/tutti-server/tutti/core/status"
)

// modelFile is the name of the module.
const modelFile = "model.wasm"

// Keys of --backend-config and of the parameters of config.pbtxt.
const (
	keyCache  = "cache-directory"
	keyTime   = "time_limit"
	keyFuel   = "fuel_limit"
	keyMemory = "memory_limit"
)

// NewFactory returns the wasm backend. Its setting cache-directory is a folder in which compiled modules are kept from one start to
// the next; without it they are compiled at each start.
func NewFactory() backends.Factory {
	return backends.Factory{Name: "wasm", DefaultFile: modelFile, ConfigKeys: []string{keyCache}, Guide: guide, New: open}
}

// guide is the documentation of the backend.
var guide = backends.Guide{
	Doc: "Runs WebAssembly modules, for example of Rust, C or Go, in the server's process with wazero, which is part of the program. " +
		"A module has no access to files, the network or the environment. Its interface is described in [wasm.md](wasm.md).",
	Limits: "WebAssembly 2.0 without threads; of WASI it is preview 1, with clocks, random numbers and output to the log. Components, " +
		"decoupled models and instances of `KIND_GPU` are refused. The stack of a module is limited by wazero, not by `memory_limit`.",
	Params: []backends.Param{
		{Key: keyTime, Doc: "How long an execution may take, for example `500ms`; 10 s by default, and `0` is no limit"},
		{Key: keyFuel, Doc: "How many instructions an execution may take; no limit by default"},
		{Key: keyMemory, Doc: "How much memory an instance may have, for example `64MiB`; 256 MiB by default"},
		{Key: "*", Doc: "All others are passed to the module's `tutti_initialize`"},
	},
}

// backend is the open backend.
type backend struct{ cache wazero.CompilationCache }

var _ backends.Backend = (*backend)(nil)

func open(o backends.Options) (backends.Backend, error) {
	dir := o.Config[keyCache]
	if dir == "" {
		return &backend{wazero.NewCompilationCache()}, nil
	}
	cache, err := wazero.NewCompilationCacheWithDir(dir)
	if err != nil {
		return nil, status.Errorf(status.InvalidArg, "unexpected value '%s' of wasm setting '%s': expected a folder to write to: %w", dir, keyCache, err)
	}
	return &backend{cache}, nil
}

// Close frees the compiled code.
func (b *backend) Close() error { return b.cache.Close(context.Background()) }

// Load compiles a module.
func (b *backend) Load(ctx context.Context, s backends.Settings) (backends.Model, error) {
	if ctx.Err() != nil {
		return nil, status.ErrCancelled
	}
	l, err := parseLimits(&s)
	if err != nil {
		return nil, status.Prefixf(err, "unable to load model '%s': ", s.Model)
	}
	path, err := bind.ModelFile(&s, modelFile, nil)
	if err != nil {
		return nil, err
	}
	m, err := newModel(&s, l)
	if err != nil {
		return nil, err
	}
	if err := m.compile(ctx, b.cache, path); err != nil {
		_ = m.Close() //nolint:contextcheck // what was compiled is released also when ctx is cancelled
		return nil, status.Prefixf(err, "unable to load model '%s' from '%s': ", s.Model, path)
	}
	return m, nil
}

// limits are the limits of an execution. Zero is none for time and fuel.
type limits struct {
	time  time.Duration
	fuel  int64
	pages uint32 // of memory
}

const (
	pageSize      = 1 << 16
	defaultTime   = 10 * time.Second
	defaultMemory = 256 << 20
	maxMemory     = 1<<32 - pageSize
)

// parseLimits reads the limits from the parameters of a configuration.
func parseLimits(s *backends.Settings) (limits, error) {
	l := limits{time: defaultTime, pages: defaultMemory / pageSize}
	if text := s.Param(keyTime); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 {
			return l, status.Errorf(status.InvalidArg, "unexpected value '%s' of parameter '%s': expected a duration like 500ms or 2s, or 0 for no limit", text, keyTime)
		}
		l.time = d
	}
	if text := s.Param(keyFuel); text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 {
			return l, status.Errorf(status.InvalidArg, "unexpected value '%s' of parameter '%s': expected a number of instructions, or 0 for no limit", text, keyFuel)
		}
		l.fuel = n
	}
	if text := s.Param(keyMemory); text != "" {
		n, ok := parseSize(text)
		if !ok || n < pageSize || n > maxMemory {
			return l, status.Errorf(status.InvalidArg, "unexpected value '%s' of parameter '%s': expected a size from 64KiB to 4194240KiB, like 64MiB", text, keyMemory)
		}
		l.pages = uint32(n / pageSize)
	}
	return l, nil
}

// units are the units of sizes.
var units = map[string]int64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}

// parseSize returns a number of bytes, given as such or with a unit: 65536, 64KiB, 64MiB or 2GiB.
func parseSize(text string) (int64, bool) {
	factor := int64(1)
	for unit, n := range units {
		if number, ok := strings.CutSuffix(text, unit); ok {
			text, factor = strings.TrimSpace(number), n
		}
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return n * factor, err == nil && n >= 0 && n <= maxMemory/factor
}

// memory returns the limit of memory for errors.
func (l *limits) memory() string {
	return fmt.Sprintf("%d KiB (parameter %s)", int64(l.pages)*pageSize/1024, keyMemory)
}

// guestParams returns the parameters that are not the backend's own, by key.
func guestParams(s *backends.Settings) (keys []string) {
	own := []string{keyTime, keyFuel, keyMemory}
	return slices.DeleteFunc(slices.Sorted(maps.Keys(s.Config.GetParameters())), func(key string) bool { return slices.Contains(own, key) })
}
