package config_test

import (
	"slices"
	"testing"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// TestFallBackToSomeGPUs checks that a group keeps the available GPUs and their accelerators.
func TestFallBackToSomeGPUs(t *testing.T) {
	t.Parallel()
	const accelerated = ` optimization { execution_accelerators { gpu_execution_accelerator { name: "tensorrt" } } }`
	o := &config.Options{GPUFallback: true, Devices: []tensor.Place{{Kind: tensor.Device, ID: 0}}}
	for text, want := range map[string]struct {
		kind        modelconfig.ModelInstanceGroup_Kind
		gpus        []int32
		accelerated bool
		warnings    int
	}{
		`instance_group { kind: KIND_GPU gpus: [ 0, 1 ] }`:  {modelconfig.ModelInstanceGroup_KIND_GPU, []int32{0}, true, 1},
		`instance_group { kind: KIND_GPU gpus: [ 1, 2 ] }`:  {modelconfig.ModelInstanceGroup_KIND_CPU, nil, false, 1},
		`instance_group { kind: KIND_GPU }`:                 {modelconfig.ModelInstanceGroup_KIND_GPU, []int32{0}, true, 0},
		`instance_group { kind: KIND_AUTO gpus: 0 }`:        {modelconfig.ModelInstanceGroup_KIND_GPU, []int32{0}, true, 0},
		`instance_group { kind: KIND_AUTO gpus: [ 0, 3 ] }`: {modelconfig.ModelInstanceGroup_KIND_CPU, nil, false, 1},
	} {
		cfg := parse(t, `name: "m" backend: "onnxruntime" `+text+accelerated)
		warnings := 0
		for _, d := range config.NormaliseAndCheck(cfg, config.Source{Name: "m", Dir: t.TempDir()}, o) {
			if d.Severity == config.Fault {
				t.Errorf("%s: %s", text, d.Reason)
			}
			if d.Code == config.OnCPU {
				warnings++
			}
		}
		g := cfg.GetInstanceGroup()[0]
		has := len(cfg.GetOptimization().GetExecutionAccelerators().GetGpuExecutionAccelerator()) > 0
		if g.GetKind() != want.kind || !slices.Equal(g.GetGpus(), want.gpus) || has != want.accelerated || warnings != want.warnings {
			t.Errorf("%s: %s at %v, accelerated %v, %d warnings; want %+v", text, g.GetKind(), g.GetGpus(), has, warnings, want)
		}
	}
}
