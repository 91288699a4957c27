package config

import (
	"cmp"
	"fmt"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// EnsemblePlatform is the platform of an ensemble.
const EnsemblePlatform = "ensemble"

// Backends that rules depend on.
const (
	onnxRuntime   = "onnxruntime"
	pythonBackend = "python"
	nativeBackend = "native"
)

// platforms maps platform names, the older form, to backends.
var platforms = map[string]string{
	"onnxruntime_onnx":      onnxRuntime,
	"tensorrt_plan":         "tensorrt",
	"pytorch_libtorch":      "pytorch",
	"tensorflow_graphdef":   "tensorflow",
	"tensorflow_savedmodel": "tensorflow",
}

// defaultFile is the model file of a backend.
type defaultFile struct{ backend, platform, file string }

// defaultFiles are the default model files, with the platform that Triton fills in, in the order of the search.
var defaultFiles = []defaultFile{
	{onnxRuntime, "onnxruntime_onnx", "model.onnx"},
	{"tensorrt", "tensorrt_plan", "model.plan"},
	{"tensorflow", "tensorflow_savedmodel", "model.savedmodel"},
	{"tensorflow", "tensorflow_graphdef", "model.graphdef"},
	{"pytorch", "pytorch_libtorch", "model.pt"},
	{"torch_aoti", "", "model.pt2"},
	{"openvino", "", "model.xml"},
	{pythonBackend, "", "model.py"},
	{"dali", "", "model.dali"},
	{"fil", "", "xgboost.model"},
	{"fil", "", "xgboost.json"},
}

// IsEnsemble reports whether cfg describes an ensemble.
func IsEnsemble(cfg *modelconfig.ModelConfig) bool {
	return cfg.GetPlatform() == EnsemblePlatform || cfg.GetEnsembleScheduling() != nil
}

// Options control how configurations are read. The zero value is the default.
type Options struct {
	// StrictEnsembleConfig reads ensembles as Triton does: nothing is derived from the steps.
	StrictEnsembleConfig bool
	NoAutoComplete       bool // requires every model to declare all inputs and outputs
	// Params returns the parameters that a backend's models read; nil: any. See backends.Factory. If Params is nil,
	// parameters are not checked.
	Params       func(backend string) []string
	StrictParams bool           // rejects parameters that nothing reads
	GPUFallback  bool           // runs instances on the CPU if their GPUs are not available
	Devices      []tensor.Place // the places, besides the host, where instances may be
}

// Normalise fills in defaults. dir is the name of the model's folder, which the model's name must equal. Normalise
// is idempotent.
func Normalise(cfg *modelconfig.ModelConfig, dir string) error {
	_, err := NormaliseWith(cfg, dir, nil)
	return err
}

// NormaliseWith is Normalise under options; nil: the defaults. It returns notices about what was filled in.
func NormaliseWith(cfg *modelconfig.ModelConfig, dir string, o *Options) ([]Diagnostic, error) {
	cfg.Name = cmp.Or(cfg.Name, dir)
	list := fillIn(cfg, o)
	if cfg.Name != dir {
		return list, Errorf(OtherFolder, "name",
			"unexpected directory name '%s' for model '%s', directory name must equal model name", dir, cfg.Name)
	}
	return list, nil
}

// fillIn fills in the defaults of a configuration that has a name.
func fillIn(cfg *modelconfig.ModelConfig, o *Options) []Diagnostic {
	if cfg.GetVersionPolicy().GetPolicyChoice() == nil {
		cfg.VersionPolicy = &modelconfig.ModelVersionPolicy{
			PolicyChoice: &modelconfig.ModelVersionPolicy_Latest_{Latest: &modelconfig.ModelVersionPolicy_Latest{NumVersions: 1}},
		}
	}
	normaliseBatching(cfg)
	if IsEnsemble(cfg) {
		if o != nil && o.StrictEnsembleConfig {
			return nil
		}
		return CompleteFlow(cfg)
	}
	list := normaliseBackend(cfg)
	list = append(list, withoutGPUs(cfg, o)...)
	normaliseInstances(cfg, o.gpus())
	normaliseOptimization(cfg)
	return list
}

// normaliseBatching fills in the defaults of the configured batcher.
func normaliseBatching(cfg *modelconfig.ModelConfig) {
	if d := cfg.GetDynamicBatching(); d != nil && len(d.PreferredBatchSize) == 0 && cfg.MaxBatchSize > 0 {
		d.PreferredBatchSize = []int32{cfg.MaxBatchSize}
	}
	if s := cfg.GetSequenceBatching(); s != nil {
		s.MaxSequenceIdleMicroseconds = cmp.Or(s.MaxSequenceIdleMicroseconds, 1000000)
		if s.StrategyChoice == nil {
			s.StrategyChoice = &modelconfig.ModelSequenceBatching_Direct{Direct: &modelconfig.ModelSequenceBatching_StrategyDirect{}}
		}
	}
}

func normaliseBackend(cfg *modelconfig.ModelConfig) []Diagnostic {
	l := &problems{cfg: cfg}
	if cfg.Backend == "" && cfg.Platform == pythonBackend {
		l.add(PythonPlatform, "platform", "model '%s' says platform: \"python\", taken as backend: \"python\"", cfg.Name)
		cfg.Backend, cfg.Platform = pythonBackend, ""
	}
	cfg.Backend = cmp.Or(cfg.Backend, platforms[cfg.Platform])
	for _, d := range defaultFiles {
		if d.backend != cfg.Backend || cfg.Platform != "" && cfg.Platform != d.platform {
			continue
		}
		if cfg.Platform == "" && d.backend != "tensorflow" {
			cfg.Platform = d.platform
		}
		if cfg.DefaultModelFilename == "" && (d.backend != "tensorflow" || cfg.Platform != "") {
			cfg.DefaultModelFilename = d.file
		}
		break
	}
	return l.list
}

func normaliseInstances(cfg *modelconfig.ModelConfig, gpus []int32) {
	if len(cfg.InstanceGroup) == 0 {
		cfg.InstanceGroup = []*modelconfig.ModelInstanceGroup{{}}
	}
	for i, g := range cfg.InstanceGroup {
		g.Name = cmp.Or(g.Name, fmt.Sprintf("%s_%d", cfg.Name, i))
		resolveKind(g, gpus)
		count := int32(1)
		if g.Kind == modelconfig.ModelInstanceGroup_KIND_CPU && (cfg.Backend == onnxRuntime || cfg.Backend == "tensorflow") {
			count = 2 // these runtimes leave the CPU idle with one instance
		}
		g.Count = cmp.Or(g.Count, count)
	}
}

func normaliseOptimization(cfg *modelconfig.ModelConfig) {
	cfg.Optimization = cmp.Or(cfg.Optimization, &modelconfig.ModelOptimizationPolicy{})
	o := cfg.Optimization
	o.InputPinnedMemory = cmp.Or(o.InputPinnedMemory, &modelconfig.ModelOptimizationPolicy_PinnedMemoryBuffer{Enable: true})
	o.OutputPinnedMemory = cmp.Or(o.OutputPinnedMemory, &modelconfig.ModelOptimizationPolicy_PinnedMemoryBuffer{Enable: true})
}
