package sim_test

import (
	"context"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/identity"
	"github.com/tutti-server/tutti/backends/sim"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// spy is a backend that records the configuration of the model it loads.
type spy struct {
	backends.Backend
	seen **modelconfig.ModelConfig
}

func (s spy) Load(ctx context.Context, set backends.Settings) (backends.Model, error) {
	*s.seen = set.Config
	return s.Backend.Load(ctx, set)
}

// TestInnerOnHost checks that the executing backend sees instance groups on the host: a backend that supports
// devices would otherwise look for real ones.
func TestInnerOnHost(t *testing.T) {
	t.Parallel()
	var seen *modelconfig.ModelConfig
	f := identity.NewFactory()
	open := f.New
	f.New = func(o backends.Options) (backends.Backend, error) {
		b, err := open(o)
		return spy{b, &seen}, err
	}
	places := tensor.NewPlaces(tensor.NewPool())
	b, err := sim.NewFactory(f).New(backends.Options{Config: map[string]string{"devices": "1"}, Places: places})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	cfg, err := config.Parse("config.pbtxt", []byte(model+`instance_group { kind: KIND_GPU gpus: 0 } instance_group { kind: KIND_MODEL }
		input { name: "INPUT0" data_type: TYPE_FP32 dims: [ 1 ] } output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 1 ] }`))
	if err != nil {
		t.Fatal(err)
	}
	m, err := b.Load(t.Context(), backends.Settings{Model: "m", Version: 1, Config: cfg, Alloc: places.At(tensor.Place{})})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if g := seen.GetInstanceGroup(); g[0].GetKind() != modelconfig.ModelInstanceGroup_KIND_CPU || len(g[0].GetGpus()) > 0 || g[1].GetKind() != modelconfig.ModelInstanceGroup_KIND_MODEL {
		t.Errorf("instance groups within: %v", g)
	}
	if cfg.GetInstanceGroup()[0].GetKind() != modelconfig.ModelInstanceGroup_KIND_GPU {
		t.Error("the model's own configuration was changed")
	}
}
