package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

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
	remoteBackend = "remote"
)

// platforms maps platform names, the older form, to backends.
var platforms = map[string]string{
	"onnxruntime_onnx":      onnxRuntime,
	"tensorrt_plan":         "tensorrt",
	"pytorch_libtorch":      "pytorch",
	"tensorflow_graphdef":   "tensorflow",
	"tensorflow_savedmodel": "tensorflow",
	"caffe2_netdef":         "caffe2",
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
	{"caffe2", "caffe2_netdef", "model.netdef"},
	{pythonBackend, "", "model.py"},
	{"dali", "", "model.dali"},
	{filBackend, "", "xgboost.model"},
	{filBackend, "", "xgboost.json"},
	{filBackend, "", "xgboost.ubj"},
	{filBackend, "", "checkpoint.tl"},
}

// The backend of forests, and its parameter that names the format of the model file.
const (
	filBackend = "fil"
	filFormat  = "model_type"
)

// filFiles are the default model files of the backend fil by format.
var filFiles = map[string]string{
	"xgboost": "xgboost.model", "xgboost_json": "xgboost.json", "xgboost_ubj": "xgboost.ubj", "lightgbm": "model.txt", "treelite_checkpoint": "checkpoint.tl",
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
	// Auto returns the meaning of KIND_AUTO for a backend where there are GPUs; nil: AutoCPU for all.
	Auto func(backend string) Auto
}

// Auto is what KIND_AUTO, or no kind, means for a backend on a machine with GPUs.
type Auto uint8

// The meanings of KIND_AUTO.
const (
	AutoCPU  Auto = iota // the CPU
	AutoGPU              // every GPU
	AutoEdge             // the side that its neighbours in an ensemble run on; the kind stays KIND_AUTO
)

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
	normaliseInstances(cfg, o)
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
			if d.backend == filBackend {
				cfg.DefaultModelFilename = cmp.Or(filFiles[cfg.GetParameters()[filFormat].GetStringValue()], d.file)
			}
		}
		break
	}
	return l.list
}

func normaliseInstances(cfg *modelconfig.ModelConfig, o *Options) {
	gpus, meaning := o.gpus(), AutoCPU
	if len(gpus) > 0 && o.Auto != nil {
		meaning = o.Auto(cfg.Backend)
	}
	if len(cfg.InstanceGroup) == 0 {
		cfg.InstanceGroup = []*modelconfig.ModelInstanceGroup{{}}
	}
	for i, g := range cfg.InstanceGroup {
		g.Name = cmp.Or(g.Name, fmt.Sprintf("%s_%d", cfg.Name, i))
		resolveKind(g, gpus, meaning)
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

func (o *Options) gpus() []int32 {
	var list []int32
	for i := 0; o != nil && i < len(o.Devices); i++ {
		if o.Devices[i].Kind == tensor.Device {
			list = append(list, int32(o.Devices[i].ID))
		}
	}
	return list
}

// resolveKind decides what a group leaves open. KIND_AUTO is the CPU unless the group names GPUs that are all
// available, or the backend says otherwise. KIND_GPU without numbers means all GPUs.
func resolveKind(g *modelconfig.ModelInstanceGroup, gpus []int32, meaning Auto) {
	auto := g.Kind == modelconfig.ModelInstanceGroup_KIND_AUTO
	switch {
	case auto && available(g.Gpus, gpus):
		g.Kind = modelconfig.ModelInstanceGroup_KIND_GPU
	case auto && len(g.Gpus) == 0 && meaning == AutoGPU:
		g.Kind, g.Gpus = modelconfig.ModelInstanceGroup_KIND_GPU, slices.Clone(gpus)
	case auto && len(g.Gpus) == 0 && meaning == AutoEdge:
	case auto:
		g.Kind, g.Gpus = modelconfig.ModelInstanceGroup_KIND_CPU, nil
	case g.Kind == modelconfig.ModelInstanceGroup_KIND_GPU && len(g.Gpus) == 0:
		g.Gpus = slices.Clone(gpus)
	}
}

// maxInstances bounds a group's count, so that a typing error does not exhaust the machine.
const maxInstances = 1024

func (l *problems) instances() {
	name := l.cfg.GetName()
	if l.cfg.GetPlatform() == EnsemblePlatform {
		return // reported already: its scheduling is missing
	}
	l.addIf(len(l.cfg.GetInstanceGroup()) == 0, InstanceGroup, "instance_group", "must specify one or more 'instance group's for %s", name)
	for i, g := range l.cfg.GetInstanceGroup() {
		field := fmt.Sprintf("instance_group[%d]", i)
		switch {
		case g.GetCount() < 0:
			l.add(InstanceGroup, field+".count", "instance group %s of model %s must specify a positive 'count', got %d", g.GetName(), name, g.GetCount())
		case g.GetCount() > maxInstances:
			l.add(InstanceGroup, field+".count", "instance group %s of model %s has 'count' %d, expected at most %d",
				g.GetName(), name, g.GetCount(), maxInstances)
		}
		l.addIf(modelconfig.ModelInstanceGroup_Kind_name[int32(g.GetKind())] == "", InstanceGroup, field+".kind",
			"instance group %s of model %s has kind %d, which is none", g.GetName(), name, g.GetKind())
		l.devices(field, g)
		l.resources(field, g)
	}
}

// devices rejects a group with unavailable devices, or with devices that its kind cannot use.
func (l *problems) devices(field string, g *modelconfig.ModelInstanceGroup) {
	name := l.cfg.GetName()
	switch {
	case g.GetKind() != modelconfig.ModelInstanceGroup_KIND_GPU:
		l.addIf(len(g.GetGpus()) > 0, InstanceGroup, field+".gpus",
			"instance group %s of model %s has kind %s but specifies one or more GPUs", g.GetName(), name, g.GetKind())
		return
	case len(g.GetGpus()) == 0 && len(l.gpus) == 0:
		l.add(InstanceGroup, field+".kind", "instance group %s of model %s has kind KIND_GPU but no GPUs are available, %s", g.GetName(), name, runOnCPU)
		l.fix("") // the reason says it
		return
	case len(g.GetGpus()) == 0:
		l.add(InstanceGroup, field+".gpus", "instance group %s of model %s has kind KIND_GPU but specifies no GPUs", g.GetName(), name)
	case len(g.GetGpus()) > maxInstances:
		l.add(InstanceGroup, field+".gpus", "instance group %s of model %s lists %d GPUs, expected at most %d", g.GetName(), name, len(g.GetGpus()), maxInstances)
		return
	}
	for _, id := range g.GetGpus() {
		if !slices.Contains(l.gpus, id) {
			l.add(InstanceGroup, field+".gpus", "instance group %s of model %s specifies invalid or unsupported gpu id %d. "+
				"GPUs with at least the minimum required CUDA compute compatibility of 6.000000 are: %s; %s",
				g.GetName(), name, id, cmp.Or(numbers(l.gpus), "none"), runOnCPU)
			l.fix("")
		}
	}
}

func numbers(list []int32) string {
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(list), "[]"), " ", ", ")
}

// resources rejects rate limiter resources without a name or count.
func (l *problems) resources(field string, g *modelconfig.ModelInstanceGroup) {
	for i, r := range g.GetRateLimiter().GetResources() {
		l.addIf(r.GetName() == "", InstanceGroup, fmt.Sprintf("%s.rate_limiter.resources[%d]", field, i),
			"instance group %s of model %s has a rate limiter resource without a 'name'", g.GetName(), l.cfg.GetName())
	}
}

// runOnCPU is the advice for a GPU model on a machine without GPUs.
const runOnCPU = "start with --gpu-fallback=cpu to run the model on the CPU"

// withoutGPUs handles requests for GPUs that are not available. As in Triton, accelerators have no effect if every
// group runs on the CPU.
func withoutGPUs(cfg *modelconfig.ModelConfig, o *Options) []Diagnostic {
	switch gpus := o.gpus(); {
	case allOnCPU(cfg):
		return acceleratorNotes(cfg, Hint, "accelerator '%s' of model '%s' is for GPUs and has no effect: every instance group has KIND_CPU")
	case o != nil && o.GPUFallback:
		return fallBack(cfg, gpus)
	case len(gpus) == 0:
		return acceleratorNotes(cfg, NoGPU, "accelerator '%s' of model '%s' needs a GPU but no GPUs are available, "+runOnCPU)
	}
	return nil
}

// fallBack moves instances from unavailable GPUs to the CPU, and removes GPU accelerators if no instance is left on
// a GPU. It returns one warning for the model.
func fallBack(cfg *modelconfig.ModelConfig, gpus []int32) []Diagnostic {
	var fields, texts []string // the settings that require GPUs, and their texts
	add := func(field, format string, args ...any) {
		fields, texts = append(fields, field), append(texts, fmt.Sprintf(format, args...))
	}
	for i, g := range cfg.GetInstanceGroup() {
		if g.GetKind() != modelconfig.ModelInstanceGroup_KIND_GPU {
			continue
		}
		field := fmt.Sprintf("instance_group[%d]", i)
		present := func(id int32) bool { return slices.Contains(gpus, id) }
		absent := slices.DeleteFunc(slices.Clone(g.GetGpus()), present)
		switch {
		case len(absent) > 0:
			add(field+".gpus", "%s wants GPU %s", field, numbers(absent))
		case len(gpus) == 0:
			add(field+".kind", "%s has KIND_GPU", field)
		}
		g.Gpus = slices.DeleteFunc(g.Gpus, func(id int32) bool { return !present(id) })
		if len(g.Gpus) == 0 && (len(absent) > 0 || len(gpus) == 0) {
			g.Kind, g.Gpus, g.SecondaryDevices = modelconfig.ModelInstanceGroup_KIND_CPU, nil, nil
		}
	}
	atGPU := func(g *modelconfig.ModelInstanceGroup) bool {
		return g.GetKind() == modelconfig.ModelInstanceGroup_KIND_GPU ||
			g.GetKind() == modelconfig.ModelInstanceGroup_KIND_AUTO && available(g.GetGpus(), gpus)
	}
	if !slices.ContainsFunc(cfg.GetInstanceGroup(), atGPU) {
		for i, a := range gpuAccelerators(cfg) {
			add(fmt.Sprintf("%s[%d]", gpuAcceleratorField, i), "accelerator '%s' is for GPUs", a.GetName())
		}
		if acc := cfg.GetOptimization().GetExecutionAccelerators(); acc != nil {
			acc.GpuExecutionAccelerator = nil
		}
	}
	l := &problems{cfg: cfg}
	if len(texts) > 0 {
		l.add(OnCPU, fields[0], "model '%s' runs on the CPU, because there are no such GPUs: %s", cfg.GetName(), strings.Join(texts, ", "))
	}
	return l.list
}

// WantsGPU reports whether a configuration asks for GPUs: by the kind of an instance group, by their numbers, or by an accelerator.
func WantsGPU(cfg *modelconfig.ModelConfig) bool {
	return len(gpuAccelerators(cfg)) > 0 || slices.ContainsFunc(cfg.GetInstanceGroup(), func(g *modelconfig.ModelInstanceGroup) bool {
		return g.GetKind() == modelconfig.ModelInstanceGroup_KIND_GPU || len(g.GetGpus()) > 0
	})
}

const gpuAcceleratorField = "optimization.execution_accelerators.gpu_execution_accelerator"

func gpuAccelerators(cfg *modelconfig.ModelConfig) []*modelconfig.ModelOptimizationPolicy_ExecutionAccelerators_Accelerator {
	return cfg.GetOptimization().GetExecutionAccelerators().GetGpuExecutionAccelerator()
}

// available reports whether a group names GPUs and all of them are available.
func available(wanted, gpus []int32) bool {
	return len(wanted) > 0 && !slices.ContainsFunc(wanted, func(id int32) bool { return !slices.Contains(gpus, id) })
}

func allOnCPU(cfg *modelconfig.ModelConfig) bool {
	groups := cfg.GetInstanceGroup()
	return len(groups) > 0 && !slices.ContainsFunc(groups, func(g *modelconfig.ModelInstanceGroup) bool {
		return g.GetKind() != modelconfig.ModelInstanceGroup_KIND_CPU
	})
}

// acceleratorNotes returns a diagnostic of the given rule for each GPU accelerator. format has the accelerator's
// and the model's name.
func acceleratorNotes(cfg *modelconfig.ModelConfig, code Code, format string) []Diagnostic {
	l := &problems{cfg: cfg}
	for i, a := range gpuAccelerators(cfg) {
		l.add(code, fmt.Sprintf("%s[%d]", gpuAcceleratorField, i), format, a.GetName(), cfg.GetName())
	}
	return l.list
}
