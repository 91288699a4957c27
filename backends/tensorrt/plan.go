//go:build cgo

package tensorrt

/*
#include "trt.h"
*/
import "C"

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"syscall"
	"unsafe"

	"github.com/tutti-server/tutti/backends/bind"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// native is the backend's own data about an input or output of a plan.
type native struct {
	name  *C.char // belongs to the engine
	shape bool    // a shape tensor: its values are extents
	host  bool    // its memory is on the host
	dims  []int64 // as the plan declares them; -1 for a variable one
	// ranges are the allowed shapes of an input, by profile.
	ranges []bounds
	// values are the allowed values of an input that is a shape tensor, by profile.
	values []bounds
}

// bounds are the smallest, best and largest extents (or values) of an optimisation profile.
type bounds struct{ low, best, high []int64 }

type port = bind.Port[native]

// plan is a deserialized engine at one device, with what it declares.
type plan struct {
	rt       *engineRuntime
	engine   unsafe.Pointer
	ins      []port
	outs     []port
	profiles int
}

// readPlan deserializes the file at path.
func readPlan(rt *engineRuntime, path string, hostCode bool) (*plan, error) {
	data, unmap, err := mapFile(path)
	if err != nil {
		return nil, err
	}
	defer unmap()
	engine, err := rt.engine(data, hostCode)
	if err != nil {
		return nil, err
	}
	p := &plan{rt: rt, engine: engine}
	if err = p.read(); err == nil {
		err = checkPlan(p)
	}
	if err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// mapFile maps a file of at least one byte into memory: plans have gigabytes, of which a device keeps most.
func mapFile(path string) (data []byte, unmap func(), err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, config.MissingFile(status.Errorf(status.NotFound, "unable to find '%s'", path), path)
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = status.Errorf(status.InvalidArg, "expected a file at '%s', found %s", path, info.Mode())
	}
	if err == nil && info.Size() == 0 {
		err = status.Errorf(status.InvalidArg, "expected a TensorRT plan at '%s', found an empty file", path)
	}
	if err != nil {
		return nil, nil, err
	}
	data, err = syscall.Mmap(int(f.Fd()), 0, int(info.Size()), syscall.PROT_READ, syscall.MAP_PRIVATE)
	if err != nil {
		return nil, nil, status.Errorf(status.Unavailable, "unable to read '%s': %w", path, err)
	}
	return data, func() { _ = syscall.Munmap(data) }, nil
}

// close releases the engine. Its runtime stays.
func (p *plan) close() {
	if p.engine != nil {
		C.tttrt_engine_free(p.rt.c, p.engine)
		p.engine = nil
	}
}

// read fills in the inputs, the outputs and their profiles.
func (p *plan) read() error {
	var tensors, profiles, implicit C.int32_t
	C.tttrt_engine_counts(p.rt.c, p.engine, &tensors, &profiles, &implicit)
	if implicit != 0 {
		return status.Errorf(status.Unsupported, "unsupported: the plan has an implicit batch dimension: build it with an explicit one, as ONNX models have")
	}
	p.profiles = int(profiles)
	for i := range tensors {
		t := new(C.tt_trt_tensor)
		C.tttrt_tensor(p.rt.c, p.engine, i, t)
		if err := p.add(t); err != nil {
			return err
		}
	}
	return nil
}

// dtypes are the element types by TensorRT's number. refusedTypes are the names of those that no data type of the protocol has.
var (
	dtypes       = []tensor.DType{tensor.FP32, tensor.FP16, tensor.Int8, tensor.Int32, tensor.Bool, tensor.Uint8, 6: tensor.Invalid, 7: tensor.BF16, 8: tensor.Int64}
	refusedTypes = map[int]string{6: "FP8", 9: "INT4", 10: "FP4", 11: "E8M0"}
)

// add appends one tensor.
func (p *plan) add(t *C.tt_trt_tensor) error {
	name := C.GoString(t.name)
	side := bind.Side(t.output != 0)
	number := int(t._type)
	switch {
	case number < 0 || number >= len(dtypes) || dtypes[number] == tensor.Invalid:
		known, ok := refusedTypes[number]
		if !ok {
			known = fmt.Sprintf("number %d", number)
		}
		return status.Errorf(status.Unsupported, "unsupported: %s '%s' has TensorRT's data type %s: build the plan with %ss of a type that requests can carry, for example FP16", side, name, known, side)
	case t.linear == 0:
		return status.Errorf(status.Unsupported, "unsupported: %s '%s' uses a non-linear IO format (%s): build the plan with linear %ss", side, name, C.GoString(t.format), side)
	case t.alias != nil:
		return status.Errorf(status.Unsupported, "unsupported: output '%s' shares the memory of input '%s'", name, C.GoString(t.alias))
	case t.dims.rank < 0:
		return status.Errorf(status.InvalidArg, "%s '%s' of the plan has no shape", side, name)
	}
	n := native{name: t.name, shape: t.shape != 0, host: t.host != 0, dims: extents(&t.dims)}
	if n.shape && len(n.dims) > 1 {
		return status.Errorf(status.Unsupported, "unsupported: shape tensor '%s' can only have 0 or 1 dimensions, got %s", name, tensor.Of(n.dims...))
	}
	if n.shape && len(n.dims) == 1 && n.dims[0] < 1 {
		return status.Errorf(status.Unsupported, "unsupported: shape tensor '%s' has shape %s, expected a fixed number of values, at least one", name, tensor.Of(n.dims...))
	}
	one := port{Name: name, DType: dtypes[number], Shape: n.dims}
	if t.output == 0 {
		p.profilesOf(t, &n)
		one.Native = n
		p.ins = append(p.ins, one)
		return nil
	}
	one.Native = n
	p.outs = append(p.outs, one)
	return nil
}

// profilesOf reads the allowed shapes and values of an input.
func (p *plan) profilesOf(t *C.tt_trt_tensor, n *native) {
	for i := range p.profiles {
		var shapes [3]C.tt_trt_dims
		C.tttrt_profile(p.rt.c, p.engine, t.name, C.int32_t(i), &shapes[0])
		n.ranges = append(n.ranges, bounds{extents(&shapes[0]), extents(&shapes[1]), extents(&shapes[2])})
		if !n.shape {
			continue
		}
		count := 1
		if len(n.dims) == 1 {
			count = int(n.dims[0])
		}
		values := make([]int64, 3*count)
		var pin runtime.Pinner
		pin.Pin(&values[0])
		if C.tttrt_profile_values(p.rt.c, p.engine, t.name, C.int32_t(i), C.int32_t(count), (*C.int64_t)(unsafe.Pointer(&values[0]))) == 0 {
			n.values = append(n.values, bounds{values[:count], values[count : 2*count], values[2*count:]})
		}
		pin.Unpin()
	}
}

// extents returns the dimensions.
func extents(d *C.tt_trt_dims) []int64 {
	rank := min(max(int(d.rank), 0), C.TT_TRT_RANK)
	return slices.Clone(unsafe.Slice((*int64)(unsafe.Pointer(&d.d[0])), rank))
}

// memory returns the bytes that an execution of a profile needs at the device.
func (p *plan) memory(profile int) int64 {
	return int64(C.tttrt_memory(p.rt.c, p.engine, C.int32_t(profile)))
}

// maxBatch returns the largest batch that a profile allows: the smallest of the largest first extents of the inputs, or of the first
// values of shape tensors. It is 0 when an input has no dimension.
func (p *plan) maxBatch(profile int) int {
	most := int64(0)
	for i := range p.ins {
		n := &p.ins[i].Native
		high := n.dims
		switch {
		case n.shape && profile < len(n.values):
			high = n.values[profile].high
		case profile < len(n.ranges) && len(n.ranges[profile].high) > 0:
			high = n.ranges[profile].high
		}
		if len(high) == 0 {
			return 0
		}
		if i == 0 || high[0] < most {
			most = high[0]
		}
	}
	return int(min(max(most, 0), 1<<30))
}

// checkPlan refuses plans whose tensors are where this package does not put them.
func checkPlan(p *plan) error {
	for _, one := range slices.Concat(p.ins, p.outs) {
		switch n := &one.Native; {
		case n.shape != n.host:
			return status.Errorf(status.Unsupported, "unsupported: tensor '%s' is a shape tensor (%t) but on the host (%t)", one.Name, n.shape, n.host)
		case n.host && one.DType != tensor.Int32 && one.DType != tensor.Int64:
			return status.Errorf(status.Unsupported, "unsupported: shape tensor '%s' has data type %s, expected INT32 or INT64", one.Name, one.DType)
		}
	}
	return nil
}
