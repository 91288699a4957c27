package pytorch

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// settings are the parameters of config.pbtxt that PyTorch understands. Those of the process are negative, or zero for
// numbers of threads, where nothing is said.
type settings struct {
	inference bool // run under InferenceMode
	optimised bool // let the graph executor optimise
	own       bool // every instance has weights of its own
	cleaning  bool // give a device's cache back after each run
	// Of the process:
	intra, inter               int
	fuser, executor, profiling int
}

// parameters name what each key sets.
var parameters = map[string]func(s *settings, key, value string) error{
	"INFERENCE_MODE": func(s *settings, key, value string) (err error) {
		s.inference, err = toggle(key, value)
		return err
	},
	"DISABLE_OPTIMIZED_EXECUTION": func(s *settings, key, value string) error {
		off, err := toggle(key, value)
		s.optimised = !off
		return err
	},
	"ENABLE_WEIGHT_SHARING": func(s *settings, key, value string) error {
		shared, err := toggle(key, value)
		s.own = !shared
		return err
	},
	"ENABLE_CACHE_CLEANING": func(s *settings, key, value string) (err error) {
		s.cleaning, err = toggle(key, value)
		return err
	},
	"ENABLE_TENSOR_FUSER":  func(s *settings, key, value string) error { return process(&s.fuser, key, value) },
	"ENABLE_JIT_EXECUTOR":  func(s *settings, key, value string) error { return process(&s.executor, key, value) },
	"ENABLE_JIT_PROFILING": func(s *settings, key, value string) error { return process(&s.profiling, key, value) },
	"INTRA_OP_THREAD_COUNT": func(s *settings, key, value string) (err error) {
		s.intra, err = count(key, value)
		return err
	},
	"INTER_OP_THREAD_COUNT": func(s *settings, key, value string) (err error) {
		s.inter, err = count(key, value)
		return err
	},
}

// modelSettings reads the settings out of a model's configuration. A key that is not known changes nothing.
func modelSettings(cfg *modelconfig.ModelConfig) (*settings, error) {
	s := &settings{inference: true, optimised: true, fuser: -1, executor: -1, profiling: -1}
	params := cfg.GetParameters()
	for _, key := range slices.Sorted(maps.Keys(params)) {
		if set := parameters[key]; set != nil {
			if err := set(s, key, params[key].GetStringValue()); err != nil {
				return nil, err
			}
		}
	}
	return s, nil
}

func process(to *int, key, value string) error {
	on, err := toggle(key, value)
	*to = 0
	if on {
		*to = 1
	}
	return err
}

func toggle(key, value string) (bool, error) {
	switch strings.ToLower(value) {
	case "0", "false":
		return false, nil
	case "1", "true":
		return true, nil
	default:
		return false, status.Errorf(status.InvalidArg, "unexpected value '%s' of parameter '%s': expected true or false", value, key)
	}
}

// count parses a number of threads; 0 keeps PyTorch's.
func count(key, value string) (int, error) {
	n, err := strconv.Atoi(value)
	if err != nil || n < 0 || n > 1024 {
		return 0, status.Errorf(status.InvalidArg, "unexpected value '%s' of parameter '%s': expected a number of threads from 0 to 1024", value, key)
	}
	return n, nil
}
