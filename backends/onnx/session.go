package onnx

/*
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"context"
	"runtime"
	"unsafe"

	"github.com/tutti-server/tutti/backends/bind"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/recovery"
)

// session is a loaded model file. Runs are safe for concurrent use, so the instances of a model share it.
type session struct {
	lib  *library
	s    *C.OrtSession
	ins  []port
	outs []port
	// alone runs loading and unloading in threads that exit afterwards, see inOwnThread.
	alone bool
}

// openSession loads the file at path and reads its inputs and outputs.
func openSession(ctx context.Context, l *library, path string, o *settings) (*session, error) {
	s := &session{lib: l.retain(), alone: o.uses(openVINO)}
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

// do runs f, in a separate thread if alone is set.
func (s *session) do(f func()) {
	if s.alone {
		inOwnThread(f)
		return
	}
	f()
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
	opts, err := newOptions(s.lib, o)
	if err != nil {
		return err
	}
	defer opts.free()
	stop := context.AfterFunc(ctx, opts.cancel)
	cpath := C.CString(path)
	defer C.free(unsafe.Pointer(cpath))
	loaded := new(*C.OrtSession)
	err = s.lib.check(C.tt_load(s.lib.rt, cpath, opts.o, loaded))
	s.s = *loaded
	if !stop() {
		opts.wait()
		return status.ErrCancelled
	}
	return bind.UnreadableFile(err, "an ONNX model", path)
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
	ports := make([]port, 0, n)
	for i := range n {
		p, err := s.declaredPort(output, i)
		if err != nil {
			return nil, err
		}
		ports = append(ports, p)
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
	p := port{Name: C.GoString(d.name), DType: ortTypes.DType(int(d._type)), Native: native{ort: d._type}}
	if d.kind != 1 {
		return p, status.Errorf(status.Unsupported, "unsupported type of %s '%s': expected a tensor, found %s", bind.Side(output), p.Name, kindName(d.kind))
	}
	if p.DType == tensor.Invalid {
		return p, status.Errorf(status.Unsupported, "unsupported datatype %s of %s '%s'", ortTypes.Name(int(d._type)), bind.Side(output), p.Name)
	}
	if d.rank > C.TT_MAX_RANK {
		return p, status.Errorf(status.Unsupported, "unsupported shape of %s '%s': expected at most %d dimensions, found %d", bind.Side(output), p.Name, C.TT_MAX_RANK, d.rank)
	}
	for k := range int(d.rank) {
		extent := int64(d.dims[k])
		p.Shape = append(p.Shape, max(extent, -1))
		p.Native.symbols = append(p.Native.symbols, C.GoString(&d.symbols[k][0]))
	}
	return p, nil
}

func flag(b bool) C.int {
	if b {
		return 1
	}
	return 0
}
