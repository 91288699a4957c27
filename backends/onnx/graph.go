package onnx

/*
#include "shim.h"
*/
import "C"

import (
	"context"
	"runtime"
	"slices"
	"strconv"
	"unsafe"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/bind"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/recovery"
)

// maxGraphs is how many sets of input shapes of an instance are captured. Runs of other shapes are not.
const maxGraphs = 16

// notCaptured is the value of gpu_graph_id for a run without a graph.
const notCaptured = -1

// graphs executes the runs of an instance whose provider captures them as CUDA graphs.
//
// A graph repeats the addresses of its first run. So each set of input shapes has fixed tensors: the inputs of a batch are copied
// into them, and the outputs out of them, at the device. The session has a stream of its own, because a capture takes whatever
// enters the stream, and a thread of its own, because the provider captures once for each thread.
type graphs struct {
	device   tensor.Allocator
	captured []*captured
	id       int // the current gpu_graph_id
	calls    chan *C.tt_call
	done     chan *C.OrtStatus
	thread   recovery.Group
}

// captured has the fixed tensors of one set of input shapes.
type captured struct {
	id      int
	dims    [][]int64 // of the inputs; nil for an absent one
	in, out []*tensor.Buffer
}

func newGraphs(device tensor.Allocator) *graphs {
	g := &graphs{device: device, id: 0, calls: make(chan *C.tt_call), done: make(chan *C.OrtStatus)}
	g.thread.Go(func() {
		runtime.LockOSThread() // without unlocking: the thread ends with its graphs
		for call := range g.calls {
			g.done <- C.tt_run_device(call)
		}
	})
	return g
}

// run executes a call in the thread of the graphs.
func (g *graphs) run(call *C.tt_call) *C.OrtStatus {
	g.calls <- call
	return <-g.done
}

// close ends the thread and releases the fixed tensors. The session's work must be done.
func (g *graphs) close() {
	close(g.calls)
	g.thread.Wait()
	for _, c := range g.captured {
		for _, b := range slices.Concat(c.in, c.out) {
			if b != nil {
				b.Release()
			}
		}
	}
	g.captured = nil
}

// capturable refuses a model whose tensors cannot have fixed addresses.
func (x *instance) capturable() error {
	for i := range x.m.In {
		if x.m.In[i].DType == tensor.Bytes || x.gpu.hostIn[i] {
			return x.m.InputErrorf(i, status.Unsupported, "CUDA graphs need every input at the GPU: remove enable_cuda_graph")
		}
	}
	for i := range x.m.Out {
		if x.m.Out[i].Native.known == nil || x.gpu.hostOut[i] {
			return x.m.OutputErrorf(i, status.Unsupported, "CUDA graphs need every output at the GPU, with a shape that follows from those of the inputs: remove enable_cuda_graph")
		}
	}
	return nil
}

// executeCaptured is Execute for an instance with graphs, once the inputs of the call are set.
func (x *instance) executeCaptured(ctx context.Context, b *backends.Batch) error {
	c, err := x.fixed()
	if err != nil {
		return err
	}
	id := notCaptured
	if c == nil {
		if _, err = x.outputs(b, true); err != nil {
			return err
		}
	} else {
		id = c.id
		if err = x.copyIn(c, b); err != nil {
			return err
		}
	}
	if err = x.graphID(id); err == nil {
		err = x.stream.Record().WaitOn(x.gpu.work)
	}
	if err == nil {
		err = x.run(ctx, b)
	}
	if back := x.gpu.work.Record().WaitOn(x.stream); err == nil { // also after an error: the inputs are in use until then
		err = back
	}
	if err != nil || c == nil {
		return err
	}
	return x.copyOut(c, b)
}

// graphID sets the graph of the next run.
func (x *instance) graphID(id int) error {
	g := x.gpu.graphs
	if g.id == id {
		return nil
	}
	g.id = id
	return x.lib.check(C.tt_call_option(x.call, cstr("gpu_graph_id"), cstr(strconv.Itoa(id))))
}

// fixed returns the fixed tensors for the shapes of the call's inputs, nil when there are too many sets of them.
//
// hot: a scan of at most maxGraphs.
func (x *instance) fixed() (*captured, error) {
	g := x.gpu.graphs
	for _, c := range g.captured {
		if x.hasShapes(c) {
			return c, nil
		}
	}
	if len(g.captured) == maxGraphs {
		return nil, nil //nolint:nilnil // documented
	}
	c := &captured{id: len(g.captured) + 1, dims: make([][]int64, len(x.in)), in: make([]*tensor.Buffer, len(x.in)), out: make([]*tensor.Buffer, len(x.out))}
	g.captured = append(g.captured, c)
	err := x.allocate(c)
	if err != nil {
		for _, b := range slices.Concat(c.in, c.out) {
			if b != nil {
				b.Release()
			}
		}
		g.captured = g.captured[:len(g.captured)-1]
	}
	return c, err
}

func (x *instance) hasShapes(c *captured) bool {
	for i := range x.in {
		v := &x.in[i]
		if (v.use == 0) != (c.dims[i] == nil) || v.use != 0 && !slices.Equal(c.dims[i], dimsOf(v)) {
			return false
		}
	}
	return true
}

// dimsOf returns the dimensions of a value, borrowed.
func dimsOf(v *C.tt_value) []int64 {
	return unsafe.Slice((*int64)(unsafe.Pointer(&v.dims)), int(v.rank))
}

// allocate sets the fixed tensors for the shapes of the call's inputs.
func (x *instance) allocate(c *captured) (err error) {
	for i := range x.in {
		if v := &x.in[i]; v.use != 0 {
			c.dims[i] = append([]int64{}, dimsOf(v)...)
			if c.in[i], err = allocNative(x.gpu.graphs.device, int(v.bytes)); err != nil {
				return x.m.InputErrorf(i, status.CodeOf(err), "%w", err)
			}
		}
	}
	for i := range x.out {
		v, p := &x.out[i], &x.m.Out[i]
		if !x.follow(v, p.Native.known) {
			return x.m.OutputErrorf(i, status.Unsupported, "CUDA graphs need the input that its shape follows from")
		}
		shape := bind.ShapeAt(unsafe.Pointer(&v.dims), int(v.rank))
		n := shape.Elements()
		if n < 0 || n > mostBytes/int64(p.DType.Size()) {
			return x.m.OutputErrorf(i, status.InvalidArg, "shape %s is too large", shape)
		}
		if c.out[i], err = allocNative(x.gpu.graphs.device, int(n)*p.DType.Size()); err != nil {
			return x.m.OutputError(i, err)
		}
	}
	return nil
}

// copyIn copies the inputs of the batch into the fixed tensors, and makes the call use those.
func (x *instance) copyIn(c *captured, b *backends.Batch) error {
	for i := range b.In {
		if x.in[i].use == 0 {
			continue
		}
		t := &b.In[i]
		if err := x.stream.Copy(c.in[i], 0, t.Buf, t.Off, t.Len); err != nil {
			return err
		}
		x.in[i].data = c.in[i].Pointer()
	}
	for i := range x.out {
		v, p := &x.out[i], &x.m.Out[i]
		x.follow(v, p.Native.known)
		v.use, v.given, v.device, v._type = 1, 1, 1, p.Native.ort
		v.data, v.bytes = c.out[i].Pointer(), C.size_t(c.out[i].Len())
	}
	return nil
}

// copyOut sets the outputs of the batch to copies of the fixed tensors.
func (x *instance) copyOut(c *captured, b *backends.Batch) error {
	for i := range x.out {
		v, p := &x.out[i], &x.m.Out[i]
		t, err := b.Alloc(i, p.DType, bind.ShapeAt(unsafe.Pointer(&v.dims), int(v.rank)))
		if err != nil {
			return x.m.OutputError(i, err)
		}
		if err = x.stream.Copy(t.Buf, t.Off, c.out[i], 0, t.Len); err == nil {
			err = x.m.ReshapeOutput(i, t)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
