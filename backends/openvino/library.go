package openvino

/*
#cgo CFLAGS: -O2
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"github.com/tutti-server/tutti/backends/bind"
	"github.com/tutti-server/tutti/backends/dylib"
	"github.com/tutti-server/tutti/core/status"
)

// library is one opened OpenVINO: its functions. It is never closed, because outputs in memory of the runtime may outlive the
// backend.
type library struct {
	f       *C.ov_functions
	path    string
	version string
}

// openLibrary loads the runtime at path.
func openLibrary(path string) (*library, error) {
	so, err := dylib.Open(path, false)
	if err != nil {
		return nil, status.Reasonf(status.RuntimeMissing, "unable to open OpenVINO: %w", err)
	}
	f := (*C.ov_functions)(C.calloc(1, C.sizeof_ov_functions))
	if f == nil {
		return nil, status.Errorf(status.Internal, "no memory for OpenVINO")
	}
	for i := range C.tov_functions() {
		address, err := so.Symbol(C.GoString(C.tov_function(i)))
		if err != nil {
			C.free(unsafe.Pointer(f))
			return nil, status.Reasonf(status.RuntimeMissing, "'%s' is not an OpenVINO C library of release 2026 or newer: %w", path, err)
		}
		C.tov_bind(f, i, address)
	}
	version, _, _ := strings.Cut(owned(C.tov_version(f)), "-") // a build's name starts with its release
	return &library{f: f, path: path, version: version}, nil
}

// core is an ov_core, which reads and compiles models with the plugins of the devices.
//
// It is created and freed in a separate thread. The CPU plugin replaces the signal stack of the thread that loads it, and frees that
// stack in the thread that unloads it; a thread of the Go runtime would crash at its next signal.
type core struct {
	lib  *library
	c    *C.ov_core
	over chan struct{} // closed to free the core
	gone chan struct{} // closed when the core is freed
}

// openCore creates a core. extension is the path of a library of operators, or empty.
func openCore(l *library, extension string) (*core, error) {
	c := &core{lib: l, over: make(chan struct{}), gone: make(chan struct{})}
	started := make(chan error)
	go c.live(extension, started)
	if err := <-started; err != nil {
		<-c.gone
		return nil, err
	}
	return c, nil
}

// live is the core's thread. It exits with the goroutine, because it is never unlocked.
func (c *core) live(extension string, started chan<- error) {
	runtime.LockOSThread()
	defer close(c.gone)
	made := new(*C.ov_core)
	if err := check(C.tov_core(c.lib.f, made)); err != nil {
		started <- err
		return
	}
	c.c = *made
	defer C.tov_core_free(c.lib.f, c.c)
	C.tov_load_plugin(c.lib.f, c.c, cstr("CPU")) // compiling reports a missing plugin
	var err error
	if extension != "" {
		if err = check(C.tov_extend(c.lib.f, c.c, cstr(extension))); err != nil {
			err = status.Prefixf(err, "extension '%s': ", extension)
		}
	}
	if started <- err; err == nil {
		<-c.over
	}
}

// close frees the core. The models that it compiled must have been closed.
func (c *core) close() {
	close(c.over)
	<-c.gone
}

// owned returns the C string at p and frees it.
func owned(p *C.char) string {
	defer C.free(unsafe.Pointer(p))
	return C.GoString(p)
}

// cstr returns s with a zero byte, as an argument of one call of C code that does not keep it.
func cstr(s string) *C.char { return (*C.char)(unsafe.Pointer(unsafe.StringData(s + "\x00"))) }

func flag(b bool) C.int {
	if b {
		return 1
	}
	return 0
}

// check converts a status of the runtime to an error, or nil.
func check(e C.tov_error) error {
	if e.text == nil {
		return nil
	}
	text, class := clean(owned(e.text)), status.Internal
	switch e.code {
	case -13: // cancelled
		return status.ErrCancelled
	case -2: // not implemented
		class = status.Unsupported
	case -4: // parameter mismatch
		class = status.InvalidArg
	}
	return status.Errorf(class, "openvino error %d: %s", int(e.code), text)
}

// clean removes source locations of the runtime from an error text, and joins its lines.
func clean(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "Exception from src/") ||
			strings.HasPrefix(line, "Check '") && strings.Contains(line, "' failed at ") && strings.HasSuffix(line, ":") {
			continue
		}
		lines = append(lines, line)
	}
	if len(lines) == 0 {
		lines = strings.Fields(text)
	}
	return strings.Join(lines, " ")
}

// graph is a model that was read from a file and is not compiled yet.
type graph struct {
	lib       *library
	core      *core
	model     *C.ov_model
	ins, outs []port
}

// port is an input or output of the model file.
type port = bind.Port[native]

// binding has the bound ports of a model.
type binding = bind.Binding[native]

// native is the backend's own data about a port.
type native struct {
	ov    C.int // element type, by number of the runtime
	index int
	// alias is true for a port that was found by an alternative name. Its index is not known.
	alias bool
	// handle is the port of the compiled model.
	handle *C.ov_port
	// known is true for an output whose shape is that of the file, with the batch as first dimension.
	known bool
	// lent is true for an output that must stay in memory of the infer request: strings, which cannot be resized, and inputs that
	// are passed through, which share a tensor with the input.
	lent bool
}

// readGraph reads the model file at path.
func readGraph(c *core, path string) (*graph, error) {
	model := new(*C.ov_model)
	if err := check(C.tov_read(c.lib.f, c.c, cstr(path), model)); err != nil {
		return nil, err
	}
	g := &graph{lib: c.lib, core: c, model: *model}
	if err := g.declare(); err != nil {
		g.close()
		return nil, err
	}
	return g, nil
}

// declare reads the inputs and outputs of the model.
func (g *graph) declare() (err error) {
	if g.ins, err = g.declared(false); err == nil {
		g.outs, err = g.declared(true)
	}
	return err
}

// close frees the graph. Compiled models stay valid.
func (g *graph) close() { C.tov_model_free(g.lib.f, g.model) }

func (g *graph) declared(output bool) ([]port, error) {
	n := new(C.size_t)
	if err := check(C.tov_count(g.lib.f, g.model, flag(output), n)); err != nil {
		return nil, err
	}
	ports := make([]port, *n)
	for i := range ports {
		d := new(C.tov_port)
		err := check(C.tov_declared(g.lib.f, g.model, flag(output), C.size_t(i), d))
		if err == nil { // a port without a name gets one by its position, for example "input_0"
			ports[i], err = described(d, output, bind.Side(output)+"_"+strconv.Itoa(i))
		}
		if err != nil {
			return nil, err
		}
		ports[i].Native.index = i
	}
	return ports, nil
}

// named returns the port with a name. A port may have several names.
func (g *graph) named(name string, output bool) (port, bool) {
	d := new(C.tov_port)
	if err := check(C.tov_alias(g.lib.f, g.model, flag(output), cstr(name), d)); err != nil {
		return port{}, false
	}
	p, err := described(d, output, name)
	p.Name, p.Native.alias = name, true
	return p, err == nil
}

// described converts a declaration.
func described(d *C.tov_port, output bool, name string) (port, error) {
	if d.name != nil {
		name = owned(d.name)
	}
	return bind.NewPort(elementTypes, name, output, int(d._type), int(d.rank), unsafe.Pointer(&d.dims), native{ov: d._type})
}

// elementTypes are the values of ov_element_type_e.
var elementTypes = bind.Types{
	"dynamic", "boolean", "bf16", "f16", "f32", "f64", "i4", "i8", "i16", "i32", "i64", "u1", "u2", "u3", "u4", "u6", "u8", "u16", "u32", "u64",
	"nf4", "f8e4m3", "f8e5m2", "string", "f4e2m1", "f8e8m0",
}

// reshape changes the shapes of the inputs.
func (g *graph) reshape(shapes [][]int64) error {
	var ranks, dims []C.int64_t
	for _, s := range shapes {
		ranks = append(ranks, C.int64_t(len(s)))
		for _, d := range s {
			dims = append(dims, C.int64_t(d))
		}
	}
	if err := check(C.tov_reshape(g.lib.f, g.model, C.size_t(len(shapes)), unsafe.SliceData(ranks), unsafe.SliceData(dims))); err != nil {
		return err
	}
	return g.declare()
}

// compile compiles the graph for a device.
func (g *graph) compile(o *settings) (*compiled, error) {
	var pin runtime.Pinner
	defer pin.Unpin()
	keys := slices.Sorted(maps.Keys(o.properties))
	values := make([]string, len(keys))
	for i, key := range keys {
		values[i] = o.properties[key]
	}
	c := new(*C.ov_compiled_model)
	if err := check(C.tov_compile(g.lib.f, g.core.c, g.model, cstr(o.device), C.size_t(len(keys)),
		(**C.char)(bind.CStrings(&pin, keys)), (**C.char)(bind.CStrings(&pin, values)), c)); err != nil {
		return nil, status.Prefixf(err, "compiling for %s: ", o.device)
	}
	return &compiled{lib: g.lib, c: *c}, nil
}

// compiled is a compiled model. It is safe for concurrent use.
type compiled struct {
	lib   *library
	c     *C.ov_compiled_model
	ports []*C.ov_port
}

// find looks up a port of the file in the compiled model.
func (c *compiled) find(p *port, output bool) error {
	var name *C.char
	if p.Native.alias {
		name = cstr(p.Name)
	}
	found := new(*C.ov_port)
	if err := check(C.tov_find(c.lib.f, c.c, flag(output), C.size_t(p.Native.index), name, found)); err != nil {
		return status.Prefixf(err, "%s '%s': ", bind.Side(output), p.Name)
	}
	p.Native.handle = *found
	c.ports = append(c.ports, *found)
	return nil
}

// property returns the value of a property that is a number, or 0.
func (c *compiled) property(key string) int {
	n, _ := strconv.Atoi(c.text(key))
	return n
}

// text returns the value of a property, "" if the compiled model has none of the name.
func (c *compiled) text(key string) string { return owned(C.tov_property(c.lib.f, c.c, cstr(key))) }

// close unloads the model. Outputs of earlier executions stay valid.
func (c *compiled) close() {
	if c == nil || c.c == nil {
		return
	}
	for _, p := range c.ports {
		C.tov_port_free(c.lib.f, p)
	}
	C.tov_compiled_free(c.lib.f, c.c)
	c.c, c.ports = nil, nil
}
