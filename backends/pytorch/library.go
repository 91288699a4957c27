package pytorch

/*
#cgo CFLAGS: -O2
#include <stdlib.h>
#include "call.h"
*/
import "C"

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"unsafe"

	"github.com/tutti-server/tutti/backends/dylib"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/runtimes"
)

// shimFile is the file name of the shim, in the folder of libtorch_cpu.so.
const shimFile = "libtutti_torch.so"

// library is the opened shim. Libraries are never unloaded, so outputs may outlive their model and backend.
type library struct {
	api     C.tt_torch_api
	path    string
	version string
}

// openLibrary opens PyTorch for a device. explicit is the backend setting library-path; if it is empty, package
// runtimes finds the library.
func openLibrary(explicit, device string) (*library, error) {
	path, err := runtimes.Find("pytorch", explicit)
	if err != nil {
		return nil, err
	}
	shim := filepath.Join(filepath.Dir(path), shimFile)
	if err := checkShim(shim); err != nil {
		return nil, err
	}
	if strings.HasPrefix(device, "cuda") {
		// The CUDA library registers PyTorch's GPU operators when it is loaded; nothing links against it.
		if _, err := dylib.Open(filepath.Join(filepath.Dir(path), "libtorch_cuda.so"), &dylib.Options{Global: true}); err != nil {
			return nil, status.Errorf(status.Unavailable, "unable to open PyTorch for device '%s': %w", device, err)
		}
	}
	so, err := dylib.Open(shim, nil)
	if err != nil {
		return nil, status.Errorf(status.Unavailable, "unable to open PyTorch: %w", err)
	}
	l := &library{path: path}
	for i := C.size_t(0); ; i++ {
		name := C.ttpt_name(i)
		if name == nil {
			break
		}
		address, err := so.Symbol(C.GoString(name))
		if err != nil {
			return nil, status.Errorf(status.Unavailable, "'%s' is not this program's shim: %w", shim, err)
		}
		C.ttpt_set(&l.api, i, address)
	}
	l.version = C.GoString(C.ttpt_version(&l.api))
	return l, nil
}

// checkShim checks that the shim exists and was compiled from the source embedded in this program.
func checkShim(shim string) error {
	data, err := os.ReadFile(shim)
	if err != nil {
		return status.Errorf(status.Unavailable, "PyTorch's library is there, but not '%s', which is compiled for it: run 'tutti runtime fetch pytorch'", shim)
	}
	if !bytes.Contains(data, []byte(sourceMark())) {
		return status.Errorf(status.Unavailable, "'%s' was compiled for another version of this program: run 'tutti runtime fetch pytorch'", shim)
	}
	return nil
}

// errorBuffer is a buffer for an error text.
type errorBuffer [C.TT_TORCH_TEXT]C.char

// text returns PyTorch's error text, shortened.
func (w *errorBuffer) text() string { return shorten(C.GoString(&w[0])) }

// shorten shortens an error text for logs and responses: at most 600 bytes in one line, and of a TorchScript
// traceback only the exception at its end.
func shorten(text string) string {
	const most = 600
	text = strings.TrimSpace(text)
	if strings.Contains(text, "Traceback of TorchScript") {
		if at := exceptionLine.FindAllStringIndex(text, -1); len(at) > 0 {
			text = text[at[len(at)-1][0]:]
		}
	}
	if text == "" {
		return "no reason given"
	}
	if len(text) > most {
		text = text[:most] + "..."
	}
	return strings.Join(strings.Fields(strings.ToValidUTF8(text, "?")), " ")
}

// exceptionLine matches the start of the exception at the end of a traceback.
var exceptionLine = regexp.MustCompile(`(?m)^[\w.]*(Error|Exception)\b: `)

// loadOptions configure the load of a model file.
type loadOptions struct {
	path, device string
	aoti         bool
	runners      int
	set          *settings
}

// load loads a model file.
func (l *library) load(o *loadOptions) (*C.tt_torch_model, error) {
	path, device := C.CString(o.path), C.CString(o.device)
	defer C.free(unsafe.Pointer(path))
	defer C.free(unsafe.Pointer(device))
	c := (*C.tt_torch_options)(C.calloc(1, C.sizeof_tt_torch_options))
	defer C.free(unsafe.Pointer(c))
	c.path, c.device = path, device
	c.aoti, c.inference = flag(o.aoti), flag(o.set.inference)
	c.plain, c.clean = flag(!o.set.optimised), flag(o.set.cleaning)
	c.runners = C.int32_t(o.runners)
	var why errorBuffer
	m := C.ttpt_load(&l.api, c, &why[0])
	if m == nil {
		return nil, status.Errorf(status.Internal, "PyTorch: %s", why.text())
	}
	return m, nil
}

// setup applies the settings that hold for the whole process.
func (l *library) setup(s *settings) error {
	p := C.tt_torch_process{
		intra_threads: C.int32_t(s.intra), inter_threads: C.int32_t(s.inter),
		fuser: C.int32_t(s.fuser), executor: C.int32_t(s.executor), profiling: C.int32_t(s.profiling),
	}
	var why errorBuffer
	if C.ttpt_setup(&l.api, &p, &why[0]) != 0 {
		return status.Errorf(status.InvalidArg, "PyTorch refuses a setting of the process: %s", why.text())
	}
	return nil
}

// threads returns the number of threads that one operator uses.
func (l *library) threads() int { return int(C.ttpt_threads(&l.api)) }

// describe returns the parameters and the result of the model's forward.
func (l *library) describe(m *C.tt_torch_model) (*forward, error) {
	var why errorBuffer
	text := C.ttpt_describe(&l.api, m, &why[0])
	if text == nil {
		return nil, status.Errorf(status.Internal, "PyTorch: %s", why.text())
	}
	defer C.free(unsafe.Pointer(text))
	return parseForward(C.GoString(text))
}

// bind passes the plan to the shim: the position or key of each input and output.
func (l *library) bind(m *C.tt_torch_model, p *plan) error {
	text := C.CString(strings.Join(append(append([]string(nil), p.in.names...), p.out.names...), "\x00") + "\x00")
	defer C.free(unsafe.Pointer(text))
	var why errorBuffer
	failed := C.ttpt_bind(&l.api, m, C.int(p.in.how), C.size_t(len(p.in.names)), positions(p.in.at),
		C.int(p.out.how), C.size_t(len(p.out.names)), positions(p.out.at), text, &why[0])
	if failed != 0 {
		return status.Errorf(status.Internal, "PyTorch: %s", why.text())
	}
	return nil
}

func positions(at []int64) *C.int64_t { return (*C.int64_t)(unsafe.Pointer(unsafe.SliceData(at))) }

// clone returns a copy of a model with its own weights.
func (l *library) clone(m *C.tt_torch_model) (*C.tt_torch_model, error) {
	var why errorBuffer
	n := C.ttpt_clone(&l.api, m, &why[0])
	if n == nil {
		return nil, status.Errorf(status.Internal, "PyTorch: %s", why.text())
	}
	return n, nil
}

func (l *library) unload(m *C.tt_torch_model) {
	if m != nil {
		C.ttpt_unload(&l.api, m)
	}
}

func flag(b bool) C.int32_t {
	if b {
		return 1
	}
	return 0
}
