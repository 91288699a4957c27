package onnx

/*
#cgo CFLAGS: -O2
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"context"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/tutti-server/tutti/backends/bind"
	"github.com/tutti-server/tutti/backends/dylib"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/environ"
	"github.com/tutti-server/tutti/internal/recovery"
)

// minVersion is the first release with the API version of ort.h.
const minVersion = "1.24"

// library is an opened ONNX Runtime. It is reference counted: the backend, each model and each output in memory of the runtime
// hold a reference, so outputs may outlive their model.
type library struct {
	rt      *C.tt_runtime
	path    string
	version string
	refs    atomic.Int64

	libraries sync.Once // opens the CUDA libraries
	unusable  error     // why they cannot be used; set once
}

// environments serialises creating and releasing the OrtEnv: a process has one, and creating it fails while the previous one is
// being released.
var environments sync.Mutex

// withoutTelemetry turns the runtime's telemetry off for this process, unless the user has set its variable.
func withoutTelemetry() error {
	environments.Lock()
	defer environments.Unlock()
	if os.Getenv(environ.ONNXTelemetry) != "" {
		return nil
	}
	return os.Setenv(environ.ONNXTelemetry, "1")
}

// openLibrary opens the library at path and creates its environment. The caller holds the only reference.
func openLibrary(path string, s start) (*library, error) {
	if err := withoutTelemetry(); err != nil {
		return nil, status.Errorf(status.Internal, "unable to turn the telemetry of ONNX Runtime off: %w", err)
	}
	so, err := dylib.Open(path, false)
	if err != nil {
		return nil, status.Reasonf(status.RuntimeMissing, "unable to open ONNX Runtime: %w", err)
	}
	base, err := so.Symbol("OrtGetApiBase")
	if err != nil {
		return nil, status.Reasonf(status.RuntimeMissing, "'%s' is not an ONNX Runtime library: %w", path, err)
	}
	rt := (*C.tt_runtime)(C.calloc(1, C.sizeof_tt_runtime))
	if rt == nil {
		return nil, status.Errorf(status.Internal, "no memory for ONNX Runtime")
	}
	text := new(*C.char)
	old := C.tt_open(base, rt, text)
	l := &library{rt: rt, path: path, version: C.GoString(*text)}
	l.refs.Store(1)
	if old != 0 {
		C.free(unsafe.Pointer(rt))
		return nil, status.Reasonf(status.RuntimeMissing, "ONNX Runtime '%s' is version %s, expected %s or newer", path, l.version, minVersion)
	}
	environments.Lock()
	err = l.check(C.tt_start(rt, &C.tt_start_settings{
		shared_threads: flag(s.shared), intra_threads: C.int(s.intra), inter_threads: C.int(s.inter), memory_limit: C.size_t(s.memory),
	}))
	environments.Unlock()
	if err != nil {
		l.release()
		return nil, status.Prefixf(err, "unable to start ONNX Runtime '%s': ", path)
	}
	return l, nil
}

func (l *library) retain() *library {
	l.refs.Add(1)
	return l
}

// release drops a reference. The last one releases the environment.
func (l *library) release() {
	if l.refs.Add(-1) > 0 {
		return
	}
	environments.Lock()
	inOwnThread(func() { C.tt_stop(l.rt) })
	environments.Unlock()
	C.free(unsafe.Pointer(l.rt))
	l.rt = nil
}

// missing returns an error for an execution provider that the library lacks. It names the package that has it.
func (l *library) missing(list []provider) error {
	if len(list) == 0 {
		return nil
	}
	names, n := new(**C.char), new(C.int)
	if err := l.check(C.tt_providers(l.rt, names, n)); err != nil {
		return err
	}
	defer C.tt_providers_free(l.rt, *names, *n)
	have := make([]string, 0, *n)
	for _, name := range unsafe.Slice(*names, int(*n)) {
		have = append(have, C.GoString(name))
	}
	for i := range list {
		if p := &list[i]; !slices.Contains(have, p.name) {
			return status.Reasonf(status.RuntimeMissing, "execution accelerator '%s' needs %s, and ONNX Runtime %s at '%s' has %s: %s",
				p.accelerator, p.name, l.version, l.path, strings.Join(have, ", "), p.get)
		}
	}
	return nil
}

// check converts a status of the runtime to an error and releases it. Nil is success.
func (l *library) check(st *C.OrtStatus) error {
	if st == nil {
		return nil
	}
	defer C.tt_forget(l.rt, st)
	var code C.int
	text := C.GoString(C.tt_text(l.rt, st, &code))
	class := status.Internal
	switch code {
	case 3: // no such file
		class = status.NotFound
	case 9: // not implemented
		class = status.Unsupported
	}
	return status.Errorf(class, "onnx runtime error %d: %s", code, text)
}

// session is a loaded model file. Runs are safe for concurrent use, so the instances of a model on the host share it. An instance on a
// GPU has its own, because the runtime ties a session to a stream.
type session struct {
	lib       *library
	s         *C.OrtSession
	ins, outs []port
	do        func(f func()) // runs loading and unloading, see inOwnThread
}

// openSession loads the file at path and reads its inputs and outputs.
func openSession(ctx context.Context, l *library, path string, o *settings) (*session, error) {
	s := &session{lib: l.retain(), do: func(f func()) { f() }}
	if slices.ContainsFunc(o.providers, func(p provider) bool { return p.kind == openVINO }) {
		s.do = inOwnThread
	}
	var err error
	s.do(func() { err = s.load(ctx, path, o) })
	if err == nil {
		s.ins, err = s.declared(false)
	}
	if err == nil {
		s.outs, err = s.declared(true)
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// inOwnThread runs f in a thread that exits afterwards. OpenVINO replaces the signal stack of the thread that loads it, and frees
// that stack in the thread that unloads it; a thread of the Go runtime would crash at its next signal.
func inOwnThread(f func()) {
	var own recovery.Group
	own.Go(func() {
		runtime.LockOSThread() // without unlocking: the thread exits with the goroutine
		f()
	})
	own.Wait()
}

// load loads the file. It stops between two steps when ctx is cancelled.
func (s *session) load(ctx context.Context, path string, o *settings) error {
	opts, err := s.lib.options(o)
	if opts != nil {
		defer C.tt_options_free(s.lib.rt, opts)
	}
	if err != nil {
		return err
	}
	cancelled := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		C.tt_options_cancel(s.lib.rt, opts)
		close(cancelled)
	})
	loaded := new(*C.OrtSession)
	err = s.lib.check(C.tt_load(s.lib.rt, cstr(path), opts, loaded))
	s.s = *loaded
	if !stop() {
		<-cancelled
		return status.ErrCancelled
	}
	if o.converted {
		return err
	}
	return bind.UnreadableFile(err, "an ONNX model", path)
}

// options creates the session options. It also starts the execution providers and opens the operator libraries. The caller frees
// the options unless they are nil, even after an error.
func (l *library) options(s *settings) (*C.OrtSessionOptions, error) {
	set, made := &C.tt_settings{
		intra_threads: C.int(s.intraThreads), inter_threads: C.int(s.interThreads), parallel: flag(s.parallel),
		graph_level: C.int(s.graphLevel), arena: flag(s.arena), pattern: flag(s.pattern), shared_threads: flag(s.shared),
	}, new(*C.OrtSessionOptions)
	err := l.check(C.tt_options_new(l.rt, set, made))
	add := func(st *C.OrtStatus, what, name string) {
		if err = l.check(st); err != nil {
			err = status.Prefixf(err, "%s '%s': ", what, name)
		}
	}
	for i := 0; err == nil && i < len(s.entries); i++ {
		e := s.entries[i]
		add(C.tt_options_entry(l.rt, *made, cstr(e[0]), cstr(e[1])), "parameter", e[0])
	}
	for i := 0; err == nil && i < len(s.libraries); i++ {
		add(C.tt_options_library(l.rt, *made, cstr(s.libraries[i])), "operator library", s.libraries[i])
	}
	for i := 0; err == nil && i < len(s.providers); i++ {
		add(l.add(*made, &s.providers[i]), "execution accelerator", s.providers[i].accelerator)
	}
	return *made, err
}

func (l *library) add(o *C.OrtSessionOptions, p *provider) *C.OrtStatus {
	var pin runtime.Pinner
	defer pin.Unpin()
	var keys, values []string
	for _, pair := range p.pairs {
		keys, values = append(keys, pair[0]), append(values, pair[1])
	}
	return C.tt_options_provider(l.rt, o, C.tt_provider(p.kind), cstr(p.name), &C.tt_pairs{
		keys: (**C.char)(bind.CStrings(&pin, keys)), values: (**C.char)(bind.CStrings(&pin, values)), n: C.size_t(len(keys)),
	})
}

// close unloads the model. Outputs of earlier executions stay valid.
func (s *session) close() {
	if s.s != nil {
		s.do(func() { C.tt_unload(s.lib.rt, s.s) })
		s.s = nil
	}
	if s.lib != nil {
		s.lib.release()
		s.lib = nil
	}
}

func (s *session) declared(output bool) ([]port, error) {
	var n C.size_t
	if err := s.lib.check(C.tt_count(s.lib.rt, s.s, flag(output), &n)); err != nil {
		return nil, err
	}
	ports := make([]port, n)
	for i := range ports {
		var err error
		if ports[i], err = s.declaredPort(output, C.size_t(i)); err != nil {
			return nil, err
		}
	}
	return ports, nil
}

func (s *session) declaredPort(output bool, i C.size_t) (port, error) {
	d := new(C.tt_port)
	err := s.lib.check(C.tt_declared(s.lib.rt, s.s, flag(output), i, d))
	defer C.free(unsafe.Pointer(d.name))
	if err != nil {
		return port{}, err
	}
	name := C.GoString(d.name)
	if d.kind != 1 {
		return port{}, status.Errorf(status.Unsupported, "unsupported type of %s '%s': expected a tensor, found %s", bind.Side(output), name, kindName(d.kind))
	}
	p, err := bind.NewPort(ortTypes, name, output, int(d._type), int(d.rank), unsafe.Pointer(&d.dims), native{ort: d._type})
	for k := range p.Shape {
		p.Native.symbols = append(p.Native.symbols, C.GoString(&d.symbols[k][0]))
	}
	return p, err
}

// ortTypes are the values of ONNXTensorElementDataType.
var ortTypes = bind.Types{
	"undefined", "float", "uint8", "int8", "uint16", "int16", "int32", "int64", "string", "bool", "float16", "double", "uint32", "uint64",
	"complex64", "complex128", "bfloat16", "float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz", "uint4", "int4",
	"float4e2m1", "uint2", "int2",
}

// kindName describes a value of ONNXType.
func kindName(kind C.int) string {
	kinds := [...]string{"an unknown kind", "a tensor", "a sequence", "a map", "an opaque value", "a sparse tensor", "an optional"}
	if kind >= 0 && int(kind) < len(kinds) {
		return kinds[kind]
	}
	return kinds[0]
}

// cstr returns s with a zero byte, as an argument of one call of C code that does not keep it.
func cstr(s string) *C.char { return (*C.char)(unsafe.Pointer(unsafe.StringData(s + "\x00"))) }

func flag(b bool) C.int {
	if b {
		return 1
	}
	return 0
}
