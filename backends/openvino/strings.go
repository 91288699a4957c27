package openvino

/*
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"bytes"
	"unsafe"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// scratch is C memory for one input, reused by each execution.
type scratch struct {
	text, list       unsafe.Pointer
	textLen, listLen int
}

func (s *scratch) free() {
	C.free(s.text)
	C.free(s.list)
	*s = scratch{}
}

// room grows text to at least that many bytes, and list to that many pointers.
func (s *scratch) room(text, list int) {
	if text > s.textLen {
		C.free(s.text)
		s.text, s.textLen = C.malloc(C.size_t(text)), text
	}
	if list > s.listLen {
		C.free(s.list)
		s.list, s.listLen = C.malloc(C.size_t(list)*C.size_t(unsafe.Sizeof(uintptr(0)))), list
	}
}

// padded copies rows to memory of the given size and clears the rest.
func (s *scratch) padded(rows []byte, size int) unsafe.Pointer {
	s.room(max(size, 1), 0)
	to := unsafe.Slice((*byte)(s.text), size)
	clear(to[copy(to, rows):])
	return s.text
}

// strings copies the elements of an input to zero-terminated strings, which the runtime needs. missing rows become empty strings.
func (x *instance) strings(i int, t *tensor.Tensor, missing int64) error {
	v, s := &x.in[i], &x.scratch[i]
	n, total := int(t.Shape.Elements()), 1
	for _, d := range v.dims[:v.rank] {
		total *= int(d)
	}
	rest := t.Bytes()
	if n < 0 || n > len(rest)/tensor.EncodedLen(0) { // checked before memory is allocated
		return x.unusable(i, len(rest)/tensor.EncodedLen(0), false)
	}
	s.room(len(rest)+1, total+1) // a zero takes less than the length, and one more is for missing rows
	text := unsafe.Slice((*byte)(s.text), len(rest)+1)
	list := unsafe.Slice((*uintptr)(s.list), total+1) // C memory, which the garbage collector does not scan
	at := 0
	for k := range n {
		elem, next, ok := tensor.NextBytes(rest)
		if !ok || bytes.IndexByte(elem, 0) >= 0 {
			return x.unusable(i, k, ok)
		}
		list[k] = uintptr(unsafe.Pointer(&text[at]))
		at += copy(text[at:], elem)
		text[at], rest = 0, next
		at++
	}
	if len(rest) > 0 {
		return x.unusable(i, n, false)
	}
	text[len(text)-1] = 0
	for k := n; k < total && missing > 0; k++ {
		list[k] = uintptr(unsafe.Pointer(&text[len(text)-1]))
	}
	v.text, v.elements = (**C.char)(s.list), C.size_t(total)
	return nil
}

func (x *instance) unusable(i, k int, whole bool) error {
	if !whole {
		return x.m.InputErrorf(i, status.InvalidArg, "the BYTES tensor is cut or too long at element %d", k)
	}
	return x.m.InputErrorf(i, status.InvalidArg, "element %d has a zero byte, which OpenVINO does not take in a string", k)
}

// stringsOut copies the elements of an output. made is the number of elements that the runtime created.
func (x *instance) stringsOut(b *backends.Batch, i int, shape tensor.Shape, made int) error {
	v := &x.out[i]
	wanted := v.elements
	v.elements = C.size_t(made)
	n := C.tov_strings_len(x.lib.f, v, wanted)
	v.elements = wanted
	if n < 0 {
		return x.m.OutputErrorf(i, status.Internal, "strings of OpenVINO %s cannot be read", x.lib.version)
	}
	t, err := b.AllocBytes(i, shape, int(n))
	if err != nil || n == 0 {
		return err
	}
	C.tov_strings(v, (*C.uchar)(t.Pointer()))
	return nil
}
