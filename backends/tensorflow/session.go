package tensorflow

/*
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/bind"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// session is one loaded copy of a model. Runs may be concurrent; close must come after them.
type session struct {
	c     *C.ttf_session
	users int // instances, guarded by the model's mutex
}

// loaded holds everything needed to load the model into another session.
type loaded struct {
	lib   *library
	files files
	set   settings
	init  []string
}

// open loads the model into a new session and runs its initialization operations.
func (l *loaded) open() (*session, error) {
	s := &session{c: C.ttf_session_new(l.lib.f)}
	if s.c == nil {
		return nil, status.Errorf(status.Internal, "no memory for a session")
	}
	load := l.savedModel
	if l.files.graph {
		load = l.graph
	}
	err := load(s)
	for i := 0; err == nil && i < len(l.init); i++ {
		err = s.runInit(l.init[i])
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (l *loaded) savedModel(s *session) error {
	path, tag, cfg := C.CString(l.files.path), C.CString(l.set.tag), l.set.proto()
	defer C.free(unsafe.Pointer(path))
	defer C.free(unsafe.Pointer(tag))
	return s.check(C.ttf_load_saved(s.c, path, tag, unsafe.Pointer(&cfg[0]), C.size_t(len(cfg))))
}

func (l *loaded) graph(s *session) error {
	data, err := os.ReadFile(l.files.path)
	if err != nil {
		return status.Errorf(status.NotFound, "%w", err)
	}
	if len(data) == 0 {
		return status.Errorf(status.InvalidArg, "there is nothing in the file")
	}
	cfg := l.set.proto()
	return s.check(C.ttf_load_graph(s.c, unsafe.Pointer(&data[0]), C.size_t(len(data)), unsafe.Pointer(&cfg[0]), C.size_t(len(cfg))))
}

// runInit runs an initialization operation of the graph.
func (s *session) runInit(operation string) error {
	name := C.CString(operation)
	defer C.free(unsafe.Pointer(name))
	switch code := C.ttf_init(s.c, name); code {
	case C.TTF_UNFIT:
		return status.Errorf(status.InvalidArg, "the graph has no operation '%s', which the file of parameter '%s' names", operation, keyInitOps)
	default:
		if err := s.check(code); err != nil {
			return status.Prefixf(err, "operation '%s': ", operation)
		}
		return nil
	}
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
	cname := C.CString(name)
	defer C.free(unsafe.Pointer(cname))
	p := new(C.ttf_port)
	ok := index >= 0 && index < 1<<20 && C.ttf_find(s.c, cname, C.int(index), p) == 0
	return *p, ok
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
		p := port{Name: name, Shape: info.shape, AnyRank: info.anyRank, Native: native{tf: info.dtype, at: info.at}}
		if err := setType(&p, output); err != nil {
			return nil, err
		}
		ports = append(ports, p)
	}
	return ports, nil
}

// setType sets the port's element type from TensorFlow's number. It rejects types and ranks that are not supported.
func setType(p *port, output bool) error {
	if p.Native.tf > reference {
		p.Native.tf -= reference
	}
	if p.DType = tfTypes.DType(p.Native.tf); p.DType == tensor.Invalid {
		return status.Errorf(status.Unsupported, "unsupported datatype %s of %s '%s'", tfTypes.Name(p.Native.tf), bind.Side(output), p.Name)
	}
	if len(p.Shape) > C.TTF_MAX_RANK {
		return status.Errorf(status.Unsupported, "unsupported shape of %s '%s': expected at most %d dimensions, found %d",
			bind.Side(output), p.Name, C.TTF_MAX_RANK, len(p.Shape))
	}
	return nil
}

// graphPorts returns the ports of a graph by the names in the configuration, because a GraphDef does not mark inputs and
// outputs.
func (s *session) graphPorts(settings *backends.Settings) (ins, outs []port, err error) {
	cfg := settings.Config
	if len(cfg.GetInput()) == 0 || len(cfg.GetOutput()) == 0 {
		return nil, nil, status.Errorf(status.InvalidArg,
			"the configuration must declare inputs and outputs, because a GraphDef does not mark them among its tensors")
	}
	for _, io := range cfg.GetInput() {
		if ins, err = s.addGraphPort(ins, io.GetName(), false); err != nil {
			return nil, nil, err
		}
	}
	for _, c := range config.SignatureOf(cfg).Computed {
		if ins, err = s.addGraphPort(ins, c.Name, false); err != nil {
			return nil, nil, err
		}
	}
	for _, io := range cfg.GetOutput() {
		if outs, err = s.addGraphPort(outs, io.GetName(), true); err != nil {
			return nil, nil, err
		}
	}
	return ins, outs, nil
}

func (s *session) addGraphPort(list []port, name string, output bool) ([]port, error) {
	found, ok := s.find(name)
	if !ok {
		return nil, status.Errorf(status.InvalidArg, "unexpected inference %s '%s', the graph has no tensor of that name", bind.Side(output), name)
	}
	p := port{Name: name, AnyRank: found.rank < 0, Native: native{tf: int(found._type), at: name}}
	if found.rank > C.TTF_MAX_RANK {
		p.Shape = make([]int64, found.rank)
	}
	for k := 0; k < int(found.rank) && found.rank <= C.TTF_MAX_RANK; k++ {
		p.Shape = append(p.Shape, max(int64(found.dims[k]), -1))
	}
	err := setType(&p, output)
	return append(list, p), err
}
