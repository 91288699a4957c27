package openvino

/*
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"strconv"
	"unsafe"

	"github.com/tutti-server/tutti/backends/bind"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// graph is a model that was read from a file and is not compiled yet.
type graph struct {
	lib       *library
	core      *core
	model     *C.ov_model
	ins, outs []port
}

// port is an input or output of the model file.
type port = bind.Port[native]

// boundPort is a port of the file that is bound to a port of the signature.
type boundPort = bind.Bound[native]

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
	// ones is the number of trailing dimensions of size 1 that only the signature has, because its dims cannot be empty.
	ones int
	// known is true for an output whose shape is that of the file, with the batch as first dimension.
	known bool
	// lent is true for an output that must stay in memory of the infer request: strings, which cannot be resized, and inputs that
	// are passed through, which share a tensor with the input.
	lent bool
}

// readGraph reads the model file at path.
func readGraph(c *core, path string) (*graph, error) {
	g := &graph{lib: c.lib, core: c}
	p := C.CString(path)
	defer C.free(unsafe.Pointer(p))
	model := new(*C.ov_model)
	if err := check(C.tov_read(c.lib.f, c.c, p, model)); err != nil {
		return nil, err
	}
	g.model = *model
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
func (g *graph) close() {
	if g.model != nil {
		C.tov_model_free(g.lib.f, g.model)
		g.model = nil
	}
}

func (g *graph) declared(output bool) ([]port, error) {
	n := new(C.size_t)
	if err := check(C.tov_count(g.lib.f, g.model, flag(output), n)); err != nil {
		return nil, err
	}
	ports := make([]port, 0, *n)
	for i := range int(*n) {
		d := new(C.tov_port)
		if err := check(C.tov_declared(g.lib.f, g.model, flag(output), C.size_t(i), d)); err != nil {
			return nil, err
		}
		p, err := described(d, output, bind.Side(output)+"_"+strconv.Itoa(i))
		if err != nil {
			return nil, err
		}
		p.Native.index = i
		ports = append(ports, p)
	}
	return ports, nil
}

// named returns the port with a name. A port may have several names.
func (g *graph) named(name string, output bool) (port, bool) {
	c := C.CString(name)
	defer C.free(unsafe.Pointer(c))
	d := new(C.tov_port)
	if err := check(C.tov_alias(g.lib.f, g.model, flag(output), c, d)); err != nil {
		return port{}, false
	}
	p, err := described(d, output, name)
	p.Name, p.Native.alias = name, true
	return p, err == nil
}

// described converts a declaration. A port without a name gets one by its position, for example "input_0".
func described(d *C.tov_port, output bool, position string) (port, error) {
	p := port{Name: position, DType: elementTypes.DType(int(d._type)), AnyRank: d.rank < 0, Native: native{ov: d._type}}
	if d.name != nil {
		p.Name = owned(d.name)
	}
	if p.DType == tensor.Invalid {
		return p, status.Errorf(status.Unsupported, "unsupported datatype %s of %s '%s'", elementTypes.Name(int(d._type)), bind.Side(output), p.Name)
	}
	if d.rank > C.TOV_MAX_RANK {
		return p, status.Errorf(status.Unsupported, "unsupported shape of %s '%s': expected at most %d dimensions, found %d",
			bind.Side(output), p.Name, C.TOV_MAX_RANK, d.rank)
	}
	for k := range max(0, int(d.rank)) {
		p.Shape = append(p.Shape, int64(d.dims[k]))
	}
	return p, nil
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
	ranks, dims = append(ranks, 0), append(dims, 0) // a non-empty slice has an address
	if err := check(C.tov_reshape(g.lib.f, g.model, C.size_t(len(shapes)), &ranks[0], &dims[0])); err != nil {
		return err
	}
	return g.declare()
}

// compile compiles the graph for a device.
func (g *graph) compile(o *settings) (*compiled, error) {
	device := C.CString(o.device)
	defer C.free(unsafe.Pointer(device))
	keys, values, free := o.marshal()
	defer free()
	c := new(*C.ov_compiled_model)
	err := check(C.tov_compile(g.lib.f, g.core.c, g.model, device, C.size_t(len(o.properties)), keys, values, c))
	if err != nil {
		return nil, status.Prefixf(err, "compiling for %s: ", o.device)
	}
	return &compiled{lib: g.lib.retain(), c: *c}, nil
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
		name = C.CString(p.Name)
		defer C.free(unsafe.Pointer(name))
	}
	found := new(*C.ov_port)
	if err := check(C.tov_find(c.lib.f, c.c, flag(output), C.size_t(p.Native.index), name, found)); err != nil {
		return status.Prefixf(err, "%s '%s': ", bind.Side(output), p.Name)
	}
	p.Native.handle = *found
	c.ports = append(c.ports, *found)
	return nil
}

// property returns the value of a property, or "".
func (c *compiled) property(key string) string {
	k := C.CString(key)
	defer C.free(unsafe.Pointer(k))
	return owned(C.tov_property(c.lib.f, c.c, k))
}

// close unloads the model. Outputs of earlier executions stay valid.
func (c *compiled) close() {
	if c.c == nil {
		return
	}
	for _, p := range c.ports {
		C.tov_port_free(c.lib.f, p)
	}
	C.tov_compiled_free(c.lib.f, c.c)
	c.lib.release()
	c.c, c.ports = nil, nil
}

func flag(b bool) C.int {
	if b {
		return 1
	}
	return 0
}
