package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/proto/modelconfig"
)

// runOnCPU is what to do about a model for GPUs on a machine without them.
const runOnCPU = "start with --gpu-fallback=cpu to run the model on the CPU"

// withoutGPUs deals with what a configuration asks of GPUs that are not there. Accelerators have no effect, as in Triton,
// where every group asks for the CPU.
func withoutGPUs(cfg *modelconfig.ModelConfig, o *Options) []Diagnostic {
	switch gpus := o.gpus(); {
	case allOnCPU(cfg):
		return tellAccelerators(cfg, Hint, "accelerator '%s' of model '%s' is for GPUs and has no effect: every instance group has KIND_CPU")
	case o != nil && o.GPUFallback:
		return fallBack(cfg, gpus)
	case len(gpus) == 0:
		return tellAccelerators(cfg, NoGPU, "accelerator '%s' of model '%s' needs a GPU but no GPUs are available, "+runOnCPU)
	}
	return nil
}

// gpuRequests are what a configuration asks of GPUs that are not there.
type gpuRequests struct {
	cfg  *modelconfig.ModelConfig
	gpus []int32 // those that are there

	said  []string // in words
	field string   // of the first
}

// fallBack has instances at GPUs that are not there run on the CPU instead, without the accelerators of GPUs where no
// instance is at one any more. It returns one warning for the whole model.
func fallBack(cfg *modelconfig.ModelConfig, gpus []int32) []Diagnostic {
	r := &gpuRequests{cfg: cfg, gpus: gpus}
	for i, g := range cfg.GetInstanceGroup() {
		r.group(i, g)
	}
	if !r.atGPU() {
		r.accelerators()
	}
	if len(r.said) == 0 {
		return nil
	}
	l := &problems{cfg: cfg}
	l.add(OnCPU, r.field, "model '%s' runs on the CPU, because there are no such GPUs: %s", cfg.GetName(), strings.Join(r.said, ", "))
	return l.list
}

// say notes what is asked for, and where.
func (r *gpuRequests) say(field, format string, args ...any) {
	r.said = append(r.said, fmt.Sprintf(format, args...))
	if r.field == "" {
		r.field = field
	}
}

// group leaves a group the GPUs that are there, and puts it on the CPU where that is none.
func (r *gpuRequests) group(i int, g *modelconfig.ModelInstanceGroup) {
	if g.GetKind() != modelconfig.ModelInstanceGroup_KIND_GPU {
		return
	}
	field := fmt.Sprintf("instance_group[%d]", i)
	var absent []int32
	for _, id := range g.GetGpus() {
		if !slices.Contains(r.gpus, id) {
			absent = append(absent, id)
		}
	}
	switch {
	case len(absent) > 0:
		r.say(field+".gpus", "%s wants GPU %s", field, numbers(absent))
	case len(r.gpus) == 0:
		r.say(field+".kind", "%s has KIND_GPU", field)
	}
	g.Gpus = slices.DeleteFunc(g.Gpus, func(id int32) bool { return slices.Contains(absent, id) })
	if len(g.Gpus) == 0 && (len(absent) > 0 || len(r.gpus) == 0) {
		g.Kind, g.Gpus, g.SecondaryDevices = modelconfig.ModelInstanceGroup_KIND_CPU, nil, nil
	}
}

// atGPU reports whether an instance is at a GPU.
func (r *gpuRequests) atGPU() bool {
	return slices.ContainsFunc(r.cfg.GetInstanceGroup(), func(g *modelconfig.ModelInstanceGroup) bool {
		return g.GetKind() == modelconfig.ModelInstanceGroup_KIND_GPU ||
			g.GetKind() == modelconfig.ModelInstanceGroup_KIND_AUTO && available(g.GetGpus(), r.gpus)
	})
}

// accelerators takes away those of GPUs.
func (r *gpuRequests) accelerators() {
	for i, a := range gpuAccelerators(r.cfg) {
		r.say(fmt.Sprintf("%s[%d]", gpuAcceleratorField, i), "accelerator '%s' is for GPUs", a.GetName())
	}
	if acc := r.cfg.GetOptimization().GetExecutionAccelerators(); acc != nil {
		acc.GpuExecutionAccelerator = nil
	}
}

const gpuAcceleratorField = "optimization.execution_accelerators.gpu_execution_accelerator"

func gpuAccelerators(cfg *modelconfig.ModelConfig) []*modelconfig.ModelOptimizationPolicy_ExecutionAccelerators_Accelerator {
	return cfg.GetOptimization().GetExecutionAccelerators().GetGpuExecutionAccelerator()
}

// available reports whether a group names GPUs, all of which are there.
func available(wanted, gpus []int32) bool {
	return len(wanted) > 0 && !slices.ContainsFunc(wanted, func(id int32) bool { return !slices.Contains(gpus, id) })
}

// allOnCPU reports whether every group asks for the CPU.
func allOnCPU(cfg *modelconfig.ModelConfig) bool {
	groups := cfg.GetInstanceGroup()
	return len(groups) > 0 && !slices.ContainsFunc(groups, func(g *modelconfig.ModelInstanceGroup) bool {
		return g.GetKind() != modelconfig.ModelInstanceGroup_KIND_CPU
	})
}

// tellAccelerators tells of each accelerator of GPUs what the rule and the text, of its name and the model's, say.
func tellAccelerators(cfg *modelconfig.ModelConfig, code Code, format string) []Diagnostic {
	l := &problems{cfg: cfg}
	for i, a := range gpuAccelerators(cfg) {
		l.add(code, fmt.Sprintf("%s[%d]", gpuAcceleratorField, i), format, a.GetName(), cfg.GetName())
	}
	return l.list
}
