package pytorch

import (
	"github.com/tutti-server/tutti/backends/bind"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// settings are the parameters of config.pbtxt for one model. Settings of the process that are not given are -1, and 0 for numbers of
// threads.
type settings struct {
	inference bool // run under InferenceMode
	optimised bool // let the graph executor optimise
	own       bool // every instance has its own weights
	cleaning  bool // empty the device's cache after each run
	// Settings of the process.
	intra, inter               int
	fuser, executor, profiling int
}

// parameters has the function that parses each parameter.
var parameters = map[string]func(s *settings, key, value string) error{
	"INFERENCE_MODE": func(s *settings, key, value string) (err error) {
		s.inference, err = boolean.Parse(key, value)
		return err
	},
	"DISABLE_OPTIMIZED_EXECUTION": func(s *settings, key, value string) error {
		off, err := boolean.Parse(key, value)
		s.optimised = !off
		return err
	},
	"ENABLE_WEIGHT_SHARING": func(s *settings, key, value string) error {
		shared, err := boolean.Parse(key, value)
		s.own = !shared
		return err
	},
	"ENABLE_CACHE_CLEANING": func(s *settings, key, value string) (err error) {
		s.cleaning, err = boolean.Parse(key, value)
		return err
	},
	"ENABLE_TENSOR_FUSER":  func(s *settings, key, value string) error { return process(&s.fuser, key, value) },
	"ENABLE_JIT_EXECUTOR":  func(s *settings, key, value string) error { return process(&s.executor, key, value) },
	"ENABLE_JIT_PROFILING": func(s *settings, key, value string) error { return process(&s.profiling, key, value) },
	"INTRA_OP_THREAD_COUNT": func(s *settings, key, value string) (err error) {
		s.intra, err = bind.ParseThreads(key, value)
		return err
	},
	"INTER_OP_THREAD_COUNT": func(s *settings, key, value string) (err error) {
		s.inter, err = bind.ParseThreads(key, value)
		return err
	},
}

// modelSettings parses the settings of a model's configuration. It ignores unknown parameters.
func modelSettings(cfg *modelconfig.ModelConfig) (*settings, error) {
	s := &settings{inference: true, optimised: true, fuser: -1, executor: -1, profiling: -1}
	err := bind.EachParam(cfg, func(key, value string) error {
		if set := parameters[key]; set != nil {
			return set(s, key, value)
		}
		return nil
	})
	return s, err
}

// boolean has the values of Triton's pytorch backend for boolean parameters.
var boolean = bind.Words{True: []string{"1", "true"}, False: []string{"0", "false"}, Expected: "true or false"}

// process parses a switch of the process.
func process(to *int, key, value string) error {
	on, err := boolean.Parse(key, value)
	*to = 0
	if on {
		*to = 1
	}
	return err
}
