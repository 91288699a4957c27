package onnx

/*
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"tutti/core/status"
	"tutti/proto/modelconfig"
)

// settings say how a model is loaded and run: the parameters of config.pbtxt that ONNX Runtime understands.
type settings struct {
	intraThreads int // threads within one operator
	interThreads int // threads over operators, used by parallel execution
	parallel     bool
	graphLevel   int // 0 none, 1 basic, 2 extended, 3 layout, 99 all
	arena        bool
	pattern      bool
	shrink       string      // the devices whose arenas shrink after each run, "" for none
	entries      [][2]string // session config entries
}

// defaultSettings are those of a model with the given number of instances: together they use each core once.
func defaultSettings(instances int) settings {
	return settings{
		intraThreads: max(1, runtime.GOMAXPROCS(0)/max(1, instances)),
		interThreads: 1,
		graphLevel:   99,
		arena:        true,
		pattern:      true,
		entries: [][2]string{
			// Spinning threads burn the cores that other steps of the ensemble need.
			{"session.intra_op.allow_spinning", "0"},
			{"session.inter_op.allow_spinning", "0"},
		},
	}
}

// threads returns how many threads one execution may compute with.
func (s *settings) threads() int {
	if s.parallel {
		return max(s.intraThreads, s.interThreads)
	}
	return s.intraThreads
}

// graphLevels are the runtime's own numbers: none, basic, extended, layout, all.
var graphLevels = []string{"0", "1", "2", "3", "99"}

// graphLevel translates optimization.graph.level: Triton's numbers are not the runtime's.
func graphLevel(level int32) int {
	switch level {
	case -1:
		return 1
	case 1:
		return 2
	case 2:
		return 0
	default:
		return 99
	}
}

// parse applies one parameter. A key it does not know belongs to another layer.
func (s *settings) parse(key, value string) (err error) {
	switch key {
	case "intra_op_thread_count":
		s.intraThreads, err = count(key, value, s.intraThreads)
	case "inter_op_thread_count":
		s.interThreads, err = count(key, value, s.interThreads)
	case "execution_mode":
		s.parallel, err = toggle(key, value)
	case "enable_mem_arena":
		s.arena, err = toggle(key, value)
	case "enable_mem_pattern":
		s.pattern, err = toggle(key, value)
	case "graph_optimization_level":
		err = s.parseGraphLevel(value)
	case "memory.enable_memory_arena_shrinkage":
		s.shrink = value
	default:
		if strings.HasPrefix(key, "session.") || strings.HasPrefix(key, "optimization.") {
			s.entry(key, value)
		}
	}
	return err
}

func (s *settings) parseGraphLevel(value string) error {
	if !slices.Contains(graphLevels, value) {
		return status.Errorf(status.InvalidArg, "unexpected value '%s' of parameter 'graph_optimization_level': expected one of %s",
			value, strings.Join(graphLevels, ", "))
	}
	s.graphLevel, _ = strconv.Atoi(value)
	return nil
}

// entry sets a session config entry, replacing a default of the same key.
func (s *settings) entry(key, value string) {
	i := slices.IndexFunc(s.entries, func(e [2]string) bool { return e[0] == key })
	if i < 0 {
		s.entries = append(s.entries, [2]string{key, value})
		return
	}
	s.entries[i][1] = value
}

// count parses a number of threads; 0 keeps the default, as in Triton.
func count(key, value string, byDefault int) (int, error) {
	n, err := strconv.Atoi(value)
	if err != nil || n < 0 || n > 1024 {
		return 0, status.Errorf(status.InvalidArg, "unexpected value '%s' of parameter '%s': expected a number of threads from 0 to 1024", value, key)
	}
	if n == 0 {
		n = byDefault
	}
	return n, nil
}

func toggle(key, value string) (bool, error) {
	switch strings.ToLower(value) {
	case "0", "false":
		return false, nil
	case "1", "true":
		return true, nil
	default:
		return false, status.Errorf(status.InvalidArg, "unexpected value '%s' of parameter '%s': expected 0, 1, true or false", value, key)
	}
}

// modelSettings reads the settings out of a model's configuration.
func modelSettings(cfg *modelconfig.ModelConfig, instances int) (settings, error) {
	s := defaultSettings(instances)
	s.graphLevel = graphLevel(cfg.GetOptimization().GetGraph().GetLevel())
	params := cfg.GetParameters()
	for _, key := range slices.Sorted(maps.Keys(params)) {
		if err := s.parse(key, params[key].GetStringValue()); err != nil {
			return s, err
		}
	}
	return s, unsupported(cfg)
}

// unsupported refuses what the configuration asks for and this package would ignore.
func unsupported(cfg *modelconfig.ModelConfig) error {
	if ops := cfg.GetModelOperations().GetOpLibraryFilename(); len(ops) > 0 {
		return status.Errorf(status.Unsupported, "custom operator library '%s' is not supported", ops[0])
	}
	acc := cfg.GetOptimization().GetExecutionAccelerators()
	for _, a := range slices.Concat(acc.GetCpuExecutionAccelerator(), acc.GetGpuExecutionAccelerator()) {
		return status.Errorf(status.Unsupported, "execution accelerator '%s' is not supported", a.GetName())
	}
	return nil
}

// marshal returns the settings in C memory and a function that frees it.
func (s *settings) marshal() (*C.tt_settings, func()) {
	var owned []unsafe.Pointer
	alloc := func(p unsafe.Pointer) unsafe.Pointer {
		owned = append(owned, p)
		return p
	}
	c := (*C.tt_settings)(alloc(C.calloc(1, C.sizeof_tt_settings)))
	c.intra_threads, c.inter_threads = C.int(s.intraThreads), C.int(s.interThreads)
	c.parallel, c.arena, c.pattern = flag(s.parallel), flag(s.arena), flag(s.pattern)
	c.graph_level = C.int(s.graphLevel)
	c.entries = C.size_t(len(s.entries))
	size := C.size_t(len(s.entries)+1) * C.size_t(unsafe.Sizeof(uintptr(0)))
	c.keys = (**C.char)(alloc(C.calloc(1, size)))
	c.values = (**C.char)(alloc(C.calloc(1, size)))
	keys, values := unsafe.Slice(c.keys, len(s.entries)), unsafe.Slice(c.values, len(s.entries))
	for i, e := range s.entries {
		keys[i] = (*C.char)(alloc(unsafe.Pointer(C.CString(e[0]))))
		values[i] = (*C.char)(alloc(unsafe.Pointer(C.CString(e[1]))))
	}
	return c, func() {
		for _, p := range owned {
			C.free(p)
		}
	}
}
