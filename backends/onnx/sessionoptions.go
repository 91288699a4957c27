package onnx

/*
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"unsafe"

	"github.com/tutti-server/tutti/core/status"
)

// options are the settings of a model as OrtSessionOptions.
type options struct {
	lib  *library
	o    *C.OrtSessionOptions
	done chan struct{} // closed when cancel has returned
}

// newOptions creates session options. It also starts the execution providers and opens the operator libraries.
func newOptions(l *library, s *settings) (*options, error) {
	x := &options{lib: l, done: make(chan struct{})}
	set, made := &C.tt_settings{
		intra_threads: C.int(s.intraThreads), inter_threads: C.int(s.interThreads), parallel: flag(s.parallel),
		graph_level: C.int(s.graphLevel), arena: flag(s.arena), pattern: flag(s.pattern), shared_threads: flag(s.shared),
	}, new(*C.OrtSessionOptions)
	err := l.check(C.tt_options_new(l.rt, set, made))
	x.o = *made
	for i := 0; err == nil && i < len(s.entries); i++ {
		err = x.entry(s.entries[i])
	}
	for i := 0; err == nil && i < len(s.libraries); i++ {
		err = x.library(s.libraries[i])
	}
	for i := 0; err == nil && i < len(s.providers); i++ {
		err = x.provider(&s.providers[i])
	}
	if err != nil {
		x.free()
		return nil, err
	}
	return x, nil
}

func (x *options) free() {
	if x.o != nil {
		C.tt_options_free(x.lib.rt, x.o)
		x.o = nil
	}
}

// cancel stops loading.
func (x *options) cancel() {
	C.tt_options_cancel(x.lib.rt, x.o)
	close(x.done)
}

// wait waits until a cancel that has started returns.
func (x *options) wait() { <-x.done }

func (x *options) entry(e [2]string) error {
	k, v := C.CString(e[0]), C.CString(e[1])
	defer C.free(unsafe.Pointer(k))
	defer C.free(unsafe.Pointer(v))
	return about(x.lib.check(C.tt_options_entry(x.lib.rt, x.o, k, v)), "parameter", e[0])
}

func (x *options) library(path string) error {
	p := C.CString(path)
	defer C.free(unsafe.Pointer(p))
	return about(x.lib.check(C.tt_options_library(x.lib.rt, x.o, p)), "operator library", path)
}

func (x *options) provider(p *provider) error {
	name := C.CString(p.name)
	defer C.free(unsafe.Pointer(name))
	keys, freeKeys := stringList(p.pairs, 0)
	defer freeKeys()
	values, freeValues := stringList(p.pairs, 1)
	defer freeValues()
	pairs := (*C.tt_pairs)(C.calloc(1, C.sizeof_tt_pairs))
	defer C.free(unsafe.Pointer(pairs))
	pairs.keys, pairs.values, pairs.n = keys, values, C.size_t(len(p.pairs))
	err := x.lib.check(C.tt_options_provider(x.lib.rt, x.o, p.kind.number(), name, pairs))
	return about(err, "execution accelerator", p.accelerator)
}

// about prefixes an error with its subject. Nil stays nil.
func about(err error, what, name string) error {
	if err == nil {
		return nil
	}
	return status.Prefixf(err, "%s '%s': ", what, name)
}

// stringList copies the keys (side 0) or values (side 1) to C memory. The caller must call free.
func stringList(pairs [][2]string, side int) (list **C.char, free func()) {
	n := len(pairs)
	list = (**C.char)(C.calloc(C.size_t(n+1), C.size_t(unsafe.Sizeof(uintptr(0)))))
	all := unsafe.Slice(list, n)
	for i := range pairs {
		all[i] = C.CString(pairs[i][side])
	}
	return list, func() {
		for _, s := range all {
			C.free(unsafe.Pointer(s))
		}
		C.free(unsafe.Pointer(list))
	}
}

// number returns the C constant of a kind.
func (k providerKind) number() C.tt_provider {
	switch k {
	case cuda:
		return C.TT_CUDA
	case tensorRT:
		return C.TT_TENSORRT
	case openVINO:
		return C.TT_OPENVINO
	default:
		return C.TT_NAMED
	}
}
