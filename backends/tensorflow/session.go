package tensorflow

/*
#cgo CFLAGS: -O2
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"github.com/tutti-server/tutti/backends/bind"
	"github.com/tutti-server/tutti/backends/dylib"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/files"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// library is an opened TensorFlow. It is never closed: objects that the runtime retains may call its functions at any time.
type library struct {
	f       *C.TF_Functions
	path    string
	version string
}

const (
	// framework is a library that the main one needs. The loader does not search beside the main library, so it is opened first.
	framework = "libtensorflow_framework.so.2"
	logLevel  = "TF_CPP_MIN_LOG_LEVEL"
	errorsToo = "2" // log levels: 0 information, 1 warnings, 2 errors, 3 what ends the process
)

// opening serialises opening a library, which changes the environment.
var opening sync.Mutex

// openLibrary loads the runtime at path, with the framework library beside it.
func openLibrary(path string) (*library, error) {
	opening.Lock()
	defer opening.Unlock()
	if os.Getenv(logLevel) == "" {
		if err := os.Setenv(logLevel, errorsToo); err != nil {
			return nil, status.Errorf(status.Internal, "unable to set the log level of TensorFlow: %w", err)
		}
	}
	var err error
	if beside := filepath.Join(filepath.Dir(path), framework); files.IsRegular(beside) {
		_, err = dylib.Open(beside, false)
	}
	var so *dylib.Library
	if err == nil {
		so, err = dylib.Open(path, false)
	}
	if err != nil {
		return nil, status.Reasonf(status.RuntimeMissing, "unable to open TensorFlow: %w", err)
	}
	l := &library{f: (*C.TF_Functions)(C.calloc(1, C.sizeof_TF_Functions)), path: path}
	for i := C.int(0); C.ttf_function(i) != nil; i++ {
		address, err := so.Symbol(C.GoString(C.ttf_function(i)))
		if err != nil {
			return nil, status.Reasonf(status.RuntimeMissing, "'%s' is not a TensorFlow 2 library: %w", path, err)
		}
		C.ttf_set_function(l.f, i, address)
	}
	l.version = C.GoString(C.ttf_version(l.f))
	return l, nil
}

// failure converts an error code of the runtime and its text to an error. INVALID_ARGUMENT is an internal error, too: it refers to
// arguments of the model's operations.
func failure(code C.int, text *C.char) error {
	class := status.Internal
	switch code {
	case 5:
		class = status.NotFound
	case 12: // unimplemented
		class = status.Unsupported
	}
	return status.Errorf(class, "tensorflow error %d: %s", code, C.GoString(text))
}

// session is one loaded copy of a model. Runs may be concurrent; close must come after them.
type session struct {
	c     *C.ttf_session
	users int // instances, guarded by the model's mutex
}

// loaded holds everything needed to load the model into another session.
type loaded struct {
	lib   *library
	files modelFiles
	set   settings
	init  []string
}

// open loads the model into a new session and runs its initialization operations.
func (l *loaded) open() (*session, error) {
	s := &session{c: C.ttf_session_new(l.lib.f)}
	if s.c == nil {
		return nil, status.Errorf(status.Internal, "no memory for a session")
	}
	err := l.load(s)
	for i := 0; err == nil && i < len(l.init); i++ {
		code := C.ttf_init(s.c, cstr(l.init[i]))
		if code == C.TTF_UNFIT {
			err = status.Errorf(status.InvalidArg, "the graph has no operation '%s', which the file of parameter '%s' names", l.init[i], keyInitOps)
		} else if err = s.check(code); err != nil {
			err = status.Prefixf(err, "operation '%s': ", l.init[i])
		}
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (l *loaded) load(s *session) error {
	cfg := l.set.proto()
	if !l.files.graph {
		return s.check(C.ttf_load_saved(s.c, cstr(l.files.path), cstr(l.set.tag), unsafe.Pointer(&cfg[0]), C.size_t(len(cfg))))
	}
	data, err := os.ReadFile(l.files.path)
	if err != nil {
		return status.Errorf(status.NotFound, "%w", err)
	}
	if len(data) == 0 {
		return status.Errorf(status.InvalidArg, "there is nothing in the file")
	}
	return s.check(C.ttf_load_graph(s.c, unsafe.Pointer(&data[0]), C.size_t(len(data)), unsafe.Pointer(&cfg[0]), C.size_t(len(cfg))))
}

func (s *session) check(code C.int) error {
	if code == 0 {
		return nil
	}
	return failure(code, C.ttf_session_text(s.c))
}

// close unloads the model. Outputs of earlier runs stay valid.
func (s *session) close() {
	if s.c != nil {
		C.ttf_session_free(s.c)
		s.c = nil
	}
}

// operation splits a tensor name into operation and output index. For example, "add:1" is output 1 of "add", and
// "add" is output 0.
func operation(at string) (name string, index int) {
	if i := strings.LastIndexByte(at, ':'); i >= 0 {
		if n, err := strconv.Atoi(at[i+1:]); err == nil {
			return at[:i], n
		}
	}
	return at, 0
}

// find looks up an operation's output by tensor name, and reports whether the graph has it.
func (s *session) find(at string) (C.ttf_port, bool) {
	name, index := operation(at)
	p := new(C.ttf_port)
	ok := index >= 0 && index < 1<<20 && C.ttf_find(s.c, cstr(name), C.int(index), p) == 0
	return *p, ok
}

// port is an input or output of the model.
type port = bind.Port[native]

// native is the backend's own data about a port.
type native struct {
	tf int    // element type, by number of the runtime
	at string // operation and index of its output, for example "dense/BiasAdd:0"
}

// signaturePorts returns the ports of a signature of a SavedModel, sorted by name.
func (s *session) signaturePorts(name string) (ins, outs []port, err error) {
	var meta []byte
	if m := s.c.meta; m != nil && m.data != nil {
		meta = unsafe.Slice((*byte)(m.data), int(m.length))
	}
	all, err := signatures(meta)
	if err != nil {
		return nil, nil, err
	}
	chosen, err := choose(all, name)
	if err != nil {
		return nil, nil, err
	}
	if ins, err = portsOf(chosen.ins, false); err == nil {
		outs, err = portsOf(chosen.outs, true)
	}
	return ins, outs, err
}

func portsOf(list map[string]tensorInfo, output bool) ([]port, error) {
	var ports []port
	for _, name := range slices.Sorted(maps.Keys(list)) {
		info := list[name]
		if info.at == "" {
			return nil, status.Errorf(status.Unsupported, "unsupported type of %s '%s': expected a tensor, found %s", bind.Side(output), name, info.kind)
		}
		rank := len(info.shape)
		if info.anyRank {
			rank = -1
		}
		p, err := newPort(name, output, info.dtype, rank, unsafe.Pointer(unsafe.SliceData(info.shape)), info.at)
		if err != nil {
			return nil, err
		}
		ports = append(ports, p)
	}
	return ports, nil
}

// newPort is bind.NewPort. References to variables, as graphs of TensorFlow 1 have, have a type of their own; a run returns the value.
func newPort(name string, output bool, number, rank int, dims unsafe.Pointer, at string) (port, error) {
	const reference = 100
	if number > reference {
		number -= reference
	}
	return bind.NewPort(tfTypes, name, output, number, rank, dims, native{tf: number, at: at})
}

// tfTypes are the values of TF_DataType.
var tfTypes = bind.Types{
	"invalid", "float", "double", "int32", "uint8", "int16", "int8", "string", "complex64", "int64", "bool", "qint8", "quint8", "qint32",
	"bfloat16", "qint16", "quint16", "uint16", "complex128", "half", "resource", "variant", "uint32", "uint64", "float8_e5m2",
	"float8_e4m3fn", "float8_e4m3fnuz", "float8_e4m3b11fnuz", "float8_e5m2fnuz", "int4", "uint4", "int2", "uint2",
}

// graphPorts returns the ports of a graph by the names in the configuration, because a GraphDef does not mark inputs and
// outputs.
func (s *session) graphPorts(cfg *modelconfig.ModelConfig) (ins, outs []port, err error) {
	declared := config.SignatureOf(cfg)
	if len(declared.Inputs) == 0 || len(declared.Outputs) == 0 {
		return nil, nil, status.Errorf(status.InvalidArg,
			"the configuration must declare inputs and outputs, because a GraphDef does not mark them among its tensors")
	}
	add := func(list *[]port, name string, output bool) {
		if err != nil {
			return
		}
		found, ok := s.find(name)
		if !ok {
			err = status.Errorf(status.InvalidArg, "unexpected inference %s '%s', the graph has no tensor of that name", bind.Side(output), name)
			return
		}
		var p port
		p, err = newPort(name, output, int(found._type), int(found.rank), unsafe.Pointer(&found.dims), name)
		*list = append(*list, p)
	}
	for _, in := range declared.Inputs {
		add(&ins, in.Name, false)
	}
	for _, c := range declared.Computed {
		add(&ins, c.Name, false)
	}
	for _, out := range declared.Outputs {
		add(&outs, out.Name, true)
	}
	return ins, outs, err
}

// bound binds the configuration to the model.
func bound(cfg *modelconfig.ModelConfig, ins, outs []port, byDefault int) (*binding, error) {
	// The output shapes of graphs are often not reliable.
	m := &bind.Model[native]{Ins: ins, Outs: outs, WholeBatch: true, LooseOutputs: true}
	maxBatch, err := m.MaxBatch(cfg, byDefault)
	if err != nil {
		return nil, err
	}
	var missing []port // that the configuration leaves out
	if len(cfg.GetInput()) == 0 {
		missing = append(missing, m.RequestInputs(cfg)...)
	}
	if len(cfg.GetOutput()) == 0 {
		missing = append(missing, outs...)
	}
	if i := slices.IndexFunc(missing, func(p port) bool { return p.AnyRank }); i >= 0 {
		return nil, status.Errorf(status.InvalidArg, "autofill failed for model '%s': the configuration must declare tensor '%s', whose shape the model does not say",
			cfg.GetName(), missing[i].Name)
	}
	return bind.Bind(cfg, m, maxBatch)
}

// cstr returns s with a zero byte, as an argument of one call of C code that does not keep it.
func cstr(s string) *C.char { return (*C.char)(unsafe.Pointer(unsafe.StringData(s + "\x00"))) }
