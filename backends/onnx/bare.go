package onnx

/*
#cgo noescape tt_run_wrapped
#cgo nocallback tt_run_wrapped
#include "shim.h"
*/
import "C"

import "github.com/tutti-server/tutti/backends"

// bareRun is the yardstick of the benchmarks, here because test files cannot use cgo: the runtime's Run over tensors
// that were made once, with nothing of ours around it.
type bareRun struct{ x *instance }

// newBareRun wraps the batch's inputs and memory for its outputs, which must outlive it.
func newBareRun(x *instance, b *backends.Batch) (*bareRun, error) {
	if err := x.inputs(b); err != nil {
		return nil, err
	}
	if _, err := x.outputs(b, true); err != nil {
		return nil, err
	}
	return &bareRun{x}, x.lib.check(C.tt_wrap(x.call))
}

func (r *bareRun) run() error { return r.x.lib.check(C.tt_run_wrapped(r.x.call)) }

func (r *bareRun) close() { C.tt_unwrap(r.x.call) }

// bindForTest has the runs of an instance on the host go through a binding, as those at a device do.
func (x *instance) bindForTest() error { return x.lib.check(C.tt_call_bind(x.call, -1)) }
