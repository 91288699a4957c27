package onnx

import (
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/backends/bind"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

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
	entries      [][2]string // session config entries
	libraries    []string    // of custom operators
	providers    []provider  // execution providers, in order of preference
	cuda         [][2]string // settings of the CUDA provider, for instances on a GPU
}

// spinless disables spinning of idle threads, which would take the cores from other steps of an ensemble.
var spinless = [][2]string{{"session.intra_op.allow_spinning", "0"}, {"session.inter_op.allow_spinning", "0"}}

// defaultSettings returns the defaults. The instances of a model together use each core once.
func defaultSettings(instances int) settings {
	return settings{
		intraThreads: max(1, runtime.GOMAXPROCS(0)/max(1, instances)),
		interThreads: 1,
		graphLevel:   99,
		arena:        true,
		pattern:      true,
		entries:      slices.Clone(spinless),
	}
}

// threads returns the number of threads of one execution.
func (s *settings) threads() int {
	if s.parallel {
		return max(s.intraThreads, s.interThreads)
	}
	return s.intraThreads
}

// graphLevels are the values of GraphOptimizationLevel: none, basic, extended, layout, all.
var graphLevels = []string{"0", "1", "2", "3", "99"}

// graphLevel converts optimization.graph.level of Triton to the runtime's number.
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

// params are the parameters that parse reads.
var params = []string{
	"arena_extend_strategy", "cudnn_conv_algo_search", "cudnn_conv_use_max_workspace", "do_copy_in_default_stream", "enable_cuda_graph",
	"enable_mem_arena", "enable_mem_pattern", "execution_mode", "gpu_mem_limit", "graph_optimization_level", "inter_op_thread_count",
	"intra_op_thread_count", "memory.enable_memory_arena_shrinkage", "optimization.*", "session.*", "use_tf32",
}

// parse applies one parameter. It ignores parameters that are not in params.
func (s *settings) parse(key, value string) (err error) {
	switch key {
	case "intra_op_thread_count":
		s.intraThreads, err = count(key, value, s.intraThreads)
	case "inter_op_thread_count":
		s.interThreads, err = count(key, value, s.interThreads)
	case "execution_mode":
		s.parallel, err = boolean.Parse(key, value)
	case "enable_mem_arena":
		s.arena, err = boolean.Parse(key, value)
	case "enable_mem_pattern":
		s.pattern, err = boolean.Parse(key, value)
	case "graph_optimization_level":
		err = s.parseGraphLevel(value)
	case "memory.enable_memory_arena_shrinkage":
		s.shrink = value
	case "cudnn_conv_algo_search":
		return s.cudaChoice(key, value, "EXHAUSTIVE", "HEURISTIC", "DEFAULT")
	case "arena_extend_strategy":
		return s.cudaChoice(key, value, "kNextPowerOfTwo", "kSameAsRequested")
	case "gpu_mem_limit":
		if _, err := strconv.ParseUint(value, 10, 64); err != nil {
			return status.Errorf(status.InvalidArg, "unexpected value '%s' of parameter '%s': expected a number of bytes", value, key)
		}
		s.cuda = append(s.cuda, [2]string{key, value})
	case "use_tf32", "do_copy_in_default_stream", "cudnn_conv_use_max_workspace", "enable_cuda_graph":
		on, err := boolean.Parse(key, value)
		s.cuda = append(s.cuda, [2]string{key, digit(on)})
		return err
	default:
		if strings.HasPrefix(key, "session.") || strings.HasPrefix(key, "optimization.") {
			s.entry(key, value)
		}
	}
	return err
}

func digit(on bool) string {
	if on {
		return "1"
	}
	return "0"
}

// cudaChoice parses a setting of the CUDA provider, given as a number (as in Triton) or a name.
func (s *settings) cudaChoice(key, value string, names ...string) error {
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

func (s *settings) parseGraphLevel(value string) error {
	if !slices.Contains(graphLevels, value) {
		return status.Errorf(status.InvalidArg, "unexpected value '%s' of parameter 'graph_optimization_level': expected one of %s",
			value, strings.Join(graphLevels, ", "))
	}
	s.graphLevel, _ = strconv.Atoi(value)
	return nil
}

// entry sets a session config entry. It replaces an entry with the same key.
func (s *settings) entry(key, value string) {
	i := slices.IndexFunc(s.entries, func(e [2]string) bool { return e[0] == key })
	if i < 0 {
		s.entries = append(s.entries, [2]string{key, value})
		return
	}
	s.entries[i][1] = value
}

// boolean has the values of Triton's onnxruntime backend for boolean parameters.
var boolean = bind.Words{True: []string{"1", "true"}, False: []string{"0", "false"}, Expected: "0, 1, true or false"}

// count parses a number of threads; 0 keeps the default, as in Triton.
func count(key, value string, byDefault int) (int, error) {
	n, err := bind.ParseThreads(key, value)
	if n == 0 {
		n = byDefault
	}
	return n, err
}

// modelSettings parses the settings of a model's configuration.
func modelSettings(cfg *modelconfig.ModelConfig, instances int, st start) (settings, error) {
	s := defaultSettings(instances)
	if s.shared = st.shared; st.intra > 0 {
		s.intraThreads = st.intra
	}
	if st.inter > 0 {
		s.interThreads = st.inter
	}
	if st.memory > 0 {
		s.entry("session.use_env_allocators", "1")
	}
	s.graphLevel = graphLevel(cfg.GetOptimization().GetGraph().GetLevel())
	return s, bind.EachParam(cfg, s.parse)
}
