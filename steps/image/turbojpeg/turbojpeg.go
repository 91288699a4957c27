// Package turbojpeg decodes JPEG files with libturbojpeg where the system has it. The
// library is opened at run time; nothing is linked.
package turbojpeg

/*
#cgo CFLAGS: -O2
#include "shim.h"
*/
import "C"

import (
	"bytes"
	"errors"
	"fmt"
	"unsafe"

	"github.com/tutti-server/tutti/backends/dylib"
)

// names are those that systems give the library.
var names = [...]string{"libturbojpeg.so.0", "libturbojpeg.so", "libturbojpeg.0.dylib", "libturbojpeg.dylib"}

// Library is libturbojpeg, open. It may be used from any goroutine.
type Library struct {
	fns C.tt_tj
}

// Open finds the library by the names that systems give it. The error is that of the
// first name.
func Open() (*Library, error) {
	var first error
	for _, name := range names {
		so, err := dylib.Open(name, nil)
		if err == nil {
			return bind(so)
		}
		if first == nil {
			first = err
		}
	}
	return nil, first
}

func bind(so *dylib.Library) (*Library, error) {
	l := &Library{}
	for _, f := range []struct {
		name string
		to   *unsafe.Pointer
	}{
		{"tjInitDecompress", &l.fns.init},
		{"tjDecompressHeader3", &l.fns.header},
		{"tjDecompress2", &l.fns.decompress},
		{"tjGetErrorCode", &l.fns.code},
		{"tjGetErrorStr2", &l.fns.text},
		{"tjDestroy", &l.fns.destroy},
	} {
		var err error
		if *f.to, err = so.Symbol(f.name); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// Picture is what Decode is to do: a file whose header says Width x Height, decoded
// to OutWidth x OutHeight, which is a half, a quarter or an eighth, rounded up, or all
// of it.
type Picture struct {
	Width, Height       int
	OutWidth, OutHeight int
	Gray                bool // One sample a pixel; else three, as RGB.
}

var errRoom = errors.New("no room for the picture")

// Decode fills dst with rows of samples. Damaged data is an error, except stray bytes
// between segments.
func (l *Library) Decode(dst, data []byte, p Picture) error {
	channels, format := 3, C.int(0)
	if p.Gray {
		channels, format = 1, 6
	}
	if p.OutWidth < 1 || p.OutHeight < 1 || len(dst) < p.OutWidth*p.OutHeight*channels || len(data) == 0 {
		return errRoom
	}
	var text [256]byte
	rc := C.tt_tj_decode(&l.fns, (*C.uchar)(unsafe.SliceData(data)), C.ulong(len(data)), C.int(p.Width), C.int(p.Height),
		(*C.uchar)(unsafe.SliceData(dst)), C.int(p.OutWidth), C.int(p.OutHeight), format, (*C.char)(unsafe.Pointer(&text[0])), C.int(len(text))) //nolint:gocritic // It sees what cgo makes of the line.
	if rc == C.TT_TJ_OK || rc == C.TT_TJ_WARNED && bytes.Contains(text[:], []byte("extraneous bytes")) {
		return nil
	}
	said, _, _ := bytes.Cut(text[:], []byte{0})
	return fmt.Errorf("libturbojpeg: %s", said)
}
