package config

import (
	"fmt"

	"tutti/core/status"
	"tutti/proto/modelconfig"
)

// EnsemblePlatform is the platform of a model that is an ensemble of others.
const EnsemblePlatform = "ensemble"

// onnxRuntime is the one backend of which defaults depend on the name.
const onnxRuntime = "onnxruntime"

// platforms maps the older way of naming a backend to the backend.
var platforms = map[string]string{
	"onnxruntime_onnx":      onnxRuntime,
	"tensorrt_plan":         "tensorrt",
	"pytorch_libtorch":      "pytorch",
	"tensorflow_graphdef":   "tensorflow",
	"tensorflow_savedmodel": "tensorflow",
}

// IsEnsemble reports whether cfg describes an ensemble.
func IsEnsemble(cfg *modelconfig.ModelConfig) bool {
	return cfg.GetPlatform() == EnsemblePlatform || cfg.GetEnsembleScheduling() != nil
}

// Normalise fills in the defaults of what cfg leaves out; dir is the name of the
// model's folder, which the model's name must equal. Doing it twice changes nothing.
func Normalise(cfg *modelconfig.ModelConfig, dir string) error {
	if cfg.Name == "" {
		cfg.Name = dir
	}
	if cfg.Name != dir {
		return status.Errorf(status.InvalidArg,
			"unexpected directory name '%s' for model '%s', directory name must equal model name", dir, cfg.Name)
	}
	if cfg.GetVersionPolicy().GetPolicyChoice() == nil {
		cfg.VersionPolicy = &modelconfig.ModelVersionPolicy{
			PolicyChoice: &modelconfig.ModelVersionPolicy_Latest_{Latest: &modelconfig.ModelVersionPolicy_Latest{NumVersions: 1}},
		}
	}
	if d := cfg.GetDynamicBatching(); d != nil && len(d.PreferredBatchSize) == 0 && cfg.MaxBatchSize > 0 {
		d.PreferredBatchSize = []int32{cfg.MaxBatchSize}
	}
	if !IsEnsemble(cfg) {
		normaliseBackend(cfg)
		normaliseInstances(cfg)
		normaliseOptimization(cfg)
	}
	return nil
}

func normaliseBackend(cfg *modelconfig.ModelConfig) {
	if cfg.Backend == "" {
		cfg.Backend = platforms[cfg.Platform]
	}
	if cfg.Backend != onnxRuntime {
		return
	}
	if cfg.Platform == "" {
		cfg.Platform = "onnxruntime_onnx"
	}
	if cfg.DefaultModelFilename == "" {
		cfg.DefaultModelFilename = "model.onnx"
	}
}

func normaliseInstances(cfg *modelconfig.ModelConfig) {
	if len(cfg.InstanceGroup) == 0 {
		cfg.InstanceGroup = []*modelconfig.ModelInstanceGroup{{}}
	}
	for i, g := range cfg.InstanceGroup {
		if g.Name == "" {
			g.Name = fmt.Sprintf("%s_%d", cfg.Name, i)
		}
		if g.Kind == modelconfig.ModelInstanceGroup_KIND_AUTO && len(g.Gpus) == 0 {
			g.Kind = modelconfig.ModelInstanceGroup_KIND_CPU
		}
		if g.Count == 0 {
			g.Count = defaultCount(cfg, g)
		}
	}
}

// defaultCount is 1, and 2 for the runtimes that use a processor badly with one.
func defaultCount(cfg *modelconfig.ModelConfig, g *modelconfig.ModelInstanceGroup) int32 {
	if g.Kind == modelconfig.ModelInstanceGroup_KIND_CPU && (cfg.Backend == onnxRuntime || cfg.Backend == "tensorflow") {
		return 2
	}
	return 1
}

func normaliseOptimization(cfg *modelconfig.ModelConfig) {
	if cfg.Optimization == nil {
		cfg.Optimization = &modelconfig.ModelOptimizationPolicy{}
	}
	o := cfg.Optimization
	if o.InputPinnedMemory == nil {
		o.InputPinnedMemory = &modelconfig.ModelOptimizationPolicy_PinnedMemoryBuffer{Enable: true}
	}
	if o.OutputPinnedMemory == nil {
		o.OutputPinnedMemory = &modelconfig.ModelOptimizationPolicy_PinnedMemoryBuffer{Enable: true}
	}
}
