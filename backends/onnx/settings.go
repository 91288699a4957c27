//go:build cgo

package onnx

import (
	"cmp"
	"math"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/backends/bind"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/precision"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// Keys of --backend-config=onnxruntime,KEY=VALUE.
const (
	keyShared = "enable-global-threadpool"
	keyIntra  = "intra_op_thread_count"
	keyInter  = "inter_op_thread_count"
	keyMemory = "memory-limit"
)

// start has the settings of the OrtEnv. The first backend of a process determines them.
type start struct {
	shared       bool // sessions share global thread pools
	intra, inter int  // threads of the pools, 0 for the number of cores
	memory       int
}

// startSettings parses the settings of the process. With enable-global-threadpool all models share two thread pools, of
// intra_op_thread_count and inter_op_thread_count threads. Without it these are the defaults of each model. memory-limit is the
// most host memory of all models together, in bytes.
func startSettings(values map[string]string) (s start, err error) {
	if v, ok := values[keyShared]; ok {
		if s.shared, err = boolean.Parse(keyShared, v); err != nil {
			return s, err
		}
	}
	for _, n := range []struct {
		key  string
		most int
		to   *int
	}{{keyIntra, bind.MaxThreads, &s.intra}, {keyInter, bind.MaxThreads, &s.inter}, {keyMemory, math.MaxInt, &s.memory}} {
		v, ok := values[n.key]
		if !ok {
			continue
		}
		if *n.to, err = strconv.Atoi(v); err != nil || *n.to < 0 || *n.to > n.most {
			return s, status.Errorf(status.InvalidArg, "unexpected value '%s' of onnxruntime setting '%s': expected an integer of at least 0", v, n.key)
		}
	}
	return s, nil
}

// settings are the parameters of config.pbtxt for one model.
type settings struct {
	intraThreads int // threads within one operator
	interThreads int // threads that run operators in parallel
	parallel     bool
	graphLevel   int // 0 none, 1 basic, 2 extended, 3 layout, 99 all
	arena        bool
	pattern      bool
	shrink       string      // devices whose arenas shrink after each run, for example "cpu:0"
	shared       bool        // use the global thread pools
	converted    bool        // the model file is not the user's: see backends.Settings.Origin
	entries      [][2]string // session config entries
	libraries    []string    // of custom operators
	providers    []provider  // execution providers, in order of preference
	cuda         [][2]string // settings of the CUDA provider, for instances on a GPU
}

// defaultSettings returns the defaults. The instances of a model together use each core once. Idle threads do not spin, which would
// take the cores from other steps of an ensemble.
func defaultSettings(instances int) settings {
	return settings{
		intraThreads: max(1, runtime.GOMAXPROCS(0)/max(1, instances)), interThreads: 1, graphLevel: 99, arena: true, pattern: true,
		entries: [][2]string{{"session.intra_op.allow_spinning", "0"}, {"session.inter_op.allow_spinning", "0"}},
	}
}

// modelSettings parses the settings of a model's configuration.
func modelSettings(cfg *modelconfig.ModelConfig, instances int, st start) (settings, error) {
	s := defaultSettings(instances)
	s.shared, s.intraThreads, s.interThreads = st.shared, cmp.Or(st.intra, s.intraThreads), cmp.Or(st.inter, s.interThreads)
	if st.memory > 0 {
		s.entry("session.use_env_allocators", "1")
	}
	switch cfg.GetOptimization().GetGraph().GetLevel() {
	case -1:
		s.graphLevel = 1
	case 1:
		s.graphLevel = 2
	case 2:
		s.graphLevel = 0
	}
	to := s.targets()
	to[""] = func(key, value string) error {
		if strings.HasPrefix(key, "session.") || strings.HasPrefix(key, "optimization.") || strings.HasPrefix(key, "mlas.") {
			s.entry(key, value)
		}
		return nil
	}
	err := boolean.Set(cfg, to)
	return s, err
}

// threads returns the number of threads of one execution.
func (s *settings) threads() int {
	if s.parallel {
		return max(s.intraThreads, s.interThreads)
	}
	return s.intraThreads
}

// boolean has the values of Triton's onnxruntime backend for boolean parameters.
var boolean = bind.Words{True: []string{"1", "true"}, False: []string{"0", "false"}, Expected: "0, 1, true or false"}

// targets returns what the parameters of config.pbtxt set.
func (s *settings) targets() bind.Targets {
	cuda := func(key, value string) error {
		on, err := boolean.Parse(key, value)
		s.cuda = append(s.cuda, [2]string{key, strconv.Itoa(int(flag(on)))})
		return err
	}
	return bind.Targets{
		"intra_op_thread_count": &s.intraThreads, "inter_op_thread_count": &s.interThreads, "execution_mode": &s.parallel,
		"enable_mem_arena": &s.arena, "enable_mem_pattern": &s.pattern, "memory.enable_memory_arena_shrinkage": &s.shrink,
		"graph_optimization_level": s.parseGraphLevel, "session.*": nil, "optimization.*": nil, "mlas.*": nil,
		precision.Key: nil, precision.FidelityKey: nil,
		"cudnn_conv_algo_search": s.cudaChoice("EXHAUSTIVE", "HEURISTIC", "DEFAULT"),
		"arena_extend_strategy":  s.cudaChoice("kNextPowerOfTwo", "kSameAsRequested"),
		"use_tf32":               cuda, "do_copy_in_default_stream": cuda, "cudnn_conv_use_max_workspace": cuda, "enable_cuda_graph": cuda,
		"gpu_mem_limit": func(key, value string) error {
			if _, err := strconv.ParseUint(value, 10, 64); err != nil {
				return status.Errorf(status.InvalidArg, "unexpected value '%s' of parameter '%s': expected a number of bytes", value, key)
			}
			s.cuda = append(s.cuda, [2]string{key, value})
			return nil
		},
	}
}

// cudaChoice parses a setting of the CUDA provider, given as a number (as in Triton) or a name.
func (s *settings) cudaChoice(names ...string) func(key, value string) error {
	return func(key, value string) error {
		if n, err := strconv.Atoi(value); err == nil && n >= 0 && n < len(names) {
			value = names[n]
		}
		if !slices.Contains(names, value) {
			return status.Errorf(status.InvalidArg, "unexpected value '%s' of parameter '%s': expected 0 to %d, or one of %s",
				value, key, len(names)-1, strings.Join(names, ", "))
		}
		s.cuda = append(s.cuda, [2]string{key, value})
		return nil
	}
}

// parseGraphLevel parses a value of GraphOptimizationLevel: none, basic, extended, layout, all.
func (s *settings) parseGraphLevel(key, value string) error {
	levels := []string{"0", "1", "2", "3", "99"}
	if !slices.Contains(levels, value) {
		return status.Errorf(status.InvalidArg, "unexpected value '%s' of parameter '%s': expected one of %s", value, key, strings.Join(levels, ", "))
	}
	s.graphLevel, _ = strconv.Atoi(value)
	return nil
}

// entry sets a session config entry. It replaces an entry with the same key.
func (s *settings) entry(key, value string) {
	s.entries = slices.DeleteFunc(s.entries, func(e [2]string) bool { return e[0] == key })
	s.entries = append(s.entries, [2]string{key, value})
}
