package pytorch

/*
#cgo CFLAGS: -O2
#include <stdlib.h>
#include "call.h"
*/
import "C"

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	_ "embed" // the shim's source travels in the program
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/tutti-server/tutti/backends/bind"
	"github.com/tutti-server/tutti/backends/dylib"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// shimFile returns the file name of the shim, in the folder of libtorch_cpu.so. It has the hash of the source, so that several versions
// of this program can use one folder.
func shimFile() string { return "libtutti_torch-" + sourceHash()[:16] + ".so" }

// library is the opened shim. Libraries are never unloaded, so outputs may outlive their model and backend.
type library struct {
	api     C.tt_torch_api
	path    string
	version string
}

// openLibrary opens the PyTorch of a path.
func openLibrary(path string) (*library, error) {
	shim := filepath.Join(filepath.Dir(path), shimFile())
	if err := checkShim(shim); err != nil {
		return nil, err
	}
	so, err := dylib.Open(shim, false)
	if err != nil {
		return nil, status.Reasonf(status.RuntimeMissing, "unable to open PyTorch: %w", err)
	}
	l := &library{path: path}
	for i := C.size_t(0); C.ttpt_name(i) != nil; i++ {
		address, err := so.Symbol(C.GoString(C.ttpt_name(i)))
		if err != nil {
			return nil, status.Reasonf(status.RuntimeMissing, "'%s' is not this program's shim: %w", shim, err)
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
		return status.Reasonf(status.RuntimeMissing, "PyTorch's library is there, but not '%s', which is compiled for it and for this version of the program: run '%s'", shim, fetchCommand(shim))
	}
	if !bytes.Contains(data, []byte(sourceMark())) {
		return status.Reasonf(status.RuntimeMissing, "'%s' was compiled for another version of this program: run '%s'", shim, fetchCommand(shim))
	}
	return nil
}

// fetchCommand returns the command that prepares the PyTorch in whose folder a file is.
func fetchCommand(file string) string {
	if hasGPU(file) {
		return "tutti runtime fetch pytorch-gpu"
	}
	return "tutti runtime fetch pytorch"
}

// errorBuffer is a buffer for an error text.
type errorBuffer [C.TT_TORCH_TEXT]C.char

// err returns PyTorch's error.
func (w *errorBuffer) err() error {
	return status.Errorf(status.Internal, "PyTorch: %s", shorten(C.GoString(&w[0])))
}

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

// load loads a model file for a device. Of a package, as many runs may overlap as there are runners.
func (l *library) load(path, device string, runners int, set *settings) (*C.tt_torch_model, error) {
	var pin runtime.Pinner
	defer pin.Unpin()
	names := unsafe.Slice((**C.char)(bind.CStrings(&pin, []string{path, device})), 2)
	var why errorBuffer
	m := C.ttpt_load(&l.api, &C.tt_torch_options{
		path: names[0], device: names[1], runners: C.int32_t(runners), aoti: flag(isPackage(path)),
		inference: flag(set.inference), plain: flag(set.plain), clean: flag(set.cleaning),
	}, &why[0])
	if m == nil {
		return nil, why.err()
	}
	return m, nil
}

// setup applies the settings that hold for the whole process.
func (l *library) setup(s *settings) error {
	var why errorBuffer
	if C.ttpt_setup(&l.api, &C.tt_torch_process{
		intra_threads: C.int32_t(s.intra), inter_threads: C.int32_t(s.inter),
		fuser: C.int32_t(s.fuser), executor: C.int32_t(s.executor), profiling: C.int32_t(s.profiling), no_cudnn: C.int32_t(s.noCUDNN),
	}, &why[0]) != 0 {
		return status.Errorf(status.InvalidArg, "PyTorch refuses a setting of the process: %s", shorten(C.GoString(&why[0])))
	}
	return nil
}

// setMemory sets the allocator of devices, as PYTORCH_ALLOC_CONF does. It must be called before the first allocation.
func (l *library) setMemory(settings string) error {
	var why errorBuffer
	text := append([]byte(settings), 0)
	if C.ttpt_memory(&l.api, (*C.char)(unsafe.Pointer(&text[0])), &why[0]) != 0 {
		return why.err()
	}
	return nil
}

// devices returns the number of devices of a kind. For example, "cuda".
func (l *library) devices(kind string) int {
	text := append([]byte(kind), 0)
	return int(C.ttpt_devices(&l.api, (*C.char)(unsafe.Pointer(&text[0]))))
}

// empty gives the unused memory of the allocator of a device back.
func (l *library) empty(device string) {
	text := append([]byte(device), 0)
	C.ttpt_empty(&l.api, (*C.char)(unsafe.Pointer(&text[0])))
}

// free releases an output.
func (l *library) free(handle unsafe.Pointer) { C.ttpt_free(&l.api, handle) }

// describe returns the parameters and the result of the model's forward.
func (l *library) describe(m *C.tt_torch_model) (*forward, error) {
	var why errorBuffer
	text := C.ttpt_describe(&l.api, m, &why[0])
	if text == nil {
		return nil, why.err()
	}
	defer C.free(unsafe.Pointer(text))
	return parseForward(C.GoString(text))
}

// bind tells the shim the position or key of each input and output.
func (l *library) bind(m *C.tt_torch_model, in, out *order) error {
	names := strings.Join(slices.Concat(in.names, out.names), "\x00") + "\x00\x00"
	positions := func(at []int64) *C.int64_t { return (*C.int64_t)(unsafe.Pointer(unsafe.SliceData(at))) }
	var why errorBuffer
	if C.ttpt_bind(&l.api, m, C.int(in.how), C.size_t(len(in.names)), positions(in.at), C.int(out.how), C.size_t(len(out.names)), positions(out.at),
		(*C.char)(unsafe.Pointer(unsafe.StringData(names))), &why[0]) != 0 {
		return why.err()
	}
	return nil
}

func (l *library) unload(m *C.tt_torch_model) {
	if m != nil {
		C.ttpt_unload(&l.api, m)
	}
}

// scalars are the supported element types by value of PyTorch's ScalarType. That of List[str] is the shim's.
var scalars = map[C.int32_t]tensor.DType{
	0: tensor.Uint8, 1: tensor.Int8, 2: tensor.Int16, 3: tensor.Int32, 4: tensor.Int64,
	5: tensor.FP16, 6: tensor.FP32, 7: tensor.FP64, 11: tensor.Bool, 15: tensor.BF16,
	27: tensor.Uint16, 28: tensor.Uint32, 29: tensor.Uint64, 1000: tensor.Bytes,
}

// scalarOf returns the ScalarType of a data type.
func scalarOf(d tensor.DType) (C.int32_t, bool) {
	for n, have := range scalars {
		if have == d {
			return n, true
		}
	}
	return 0, false
}

// scalarName returns the name of an element type for errors.
func scalarName(n C.int32_t) string {
	if d, ok := scalars[n]; ok {
		return d.ConfigName()
	}
	return fmt.Sprintf("PyTorch's element type %d", n)
}

func flag(b bool) C.int32_t {
	if b {
		return 1
	}
	return 0
}

//go:embed shim/shim.cpp
var shimSource []byte

//go:embed shim/shim.h
var shimHeader []byte

//go:embed shim/values.h
var shimValues []byte

// shimFiles are the files of the shim's source by name.
var shimFiles = map[string][]byte{"shim.cpp": shimSource, "shim.h": shimHeader, "values.h": shimValues}

// sourceHash returns a hash of the shim's embedded source.
func sourceHash() string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(shimFiles)) {
		h.Write(shimFiles[name])
	}
	return hex.EncodeToString(h.Sum(nil))[:32]
}

// sourceMark returns the text that a compiled shim contains to identify its source.
func sourceMark() string { return "tutti-shim-source:" + sourceHash() }

// Prepare compiles the shim into the folder of lib, with the headers that were fetched with it and the C++ compiler
// in CXX, by default g++. It does nothing if the shim exists and was compiled from the same source.
func Prepare(ctx context.Context, lib string, progress io.Writer) error {
	folder := filepath.Dir(lib)
	shim := filepath.Join(folder, shimFile())
	if checkShim(shim) == nil {
		return nil
	}
	compiler, err := exec.LookPath(cmp.Or(os.Getenv("CXX"), "g++"))
	if err != nil {
		return status.Reasonf(status.RuntimeMissing, "PyTorch's shim is compiled on this machine, and there is no C++ compiler: install g++ 11 or newer and run '%s' again", fetchCommand(lib))
	}
	tmp, err := os.MkdirTemp(folder, ".shim-")
	if err != nil {
		return status.Reasonf(status.RuntimeMissing, "unable to compile PyTorch's shim: %w", err)
	}
	defer os.RemoveAll(tmp)
	for name, data := range shimFiles {
		if err := os.WriteFile(filepath.Join(tmp, name), data, 0o600); err != nil {
			return err
		}
	}
	if progress != nil {
		fmt.Fprintf(progress, "compiling PyTorch's shim with %s (half a minute)\n", compiler)
	}
	cmd := exec.CommandContext(ctx, compiler, compile(folder, tmp)...)
	cmd.WaitDelay = 5 * time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return status.Reasonf(status.RuntimeMissing, "unable to compile PyTorch's shim: %s: %w: %s", compiler, err, shorten(string(out)))
	}
	return os.Rename(filepath.Join(tmp, shimFile()), shim)
}

// compile returns the compiler's arguments. The headers are in a folder next to that of the libraries; the shim
// finds the libraries in its own folder.
func compile(folder, tmp string) []string {
	include := filepath.Join(filepath.Dir(folder), "include")
	return []string{
		"-O2", "-std=c++20", "-fPIC", "-shared", "-DTT_SOURCE=\"" + sourceHash() + "\"",
		"-isystem", include, "-isystem", filepath.Join(include, "torch", "csrc", "api", "include"),
		"-o", filepath.Join(tmp, shimFile()), filepath.Join(tmp, "shim.cpp"),
		"-L" + folder, "-ltorch_cpu", "-lc10", "-Wl,-soname,libtorch.so", "-Wl,--disable-new-dtags,-rpath,$ORIGIN", "-Wl,--allow-shlib-undefined",
	}
}
