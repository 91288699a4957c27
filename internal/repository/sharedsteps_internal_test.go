package repository

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// TestShareSteps checks that ensembles of one template share their equal steps and nothing else, and that their configurations stay as they were.
func TestShareSteps(t *testing.T) {
	t.Parallel()
	const first = `step { model_name: "a" model_version: -1 input_map { key: "X" value: "x" } input_map { key: "Y" value: "y" } output_map { key: "Z" value: "m" } }`
	parse := func(last string) *modelconfig.ModelConfig {
		cfg, err := config.Parse("config.pbtxt", []byte(`platform: "ensemble" ensemble_scheduling { `+first+` `+last+` }`))
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	all := []*folder{
		{cfg: parse(`step { model_name: "b" model_version: -1 input_map { key: "X" value: "m" } output_map { key: "Z" value: "z" } }`)},
		{}, // one whose configuration is not read
		{cfg: &modelconfig.ModelConfig{Backend: "identity"}},
		{cfg: parse(`step { model_name: "b" model_version: 3 input_map { key: "X" value: "m" } output_map { key: "Z" value: "z" } }`)},
	}
	before := []*modelconfig.ModelConfig{proto.CloneOf(all[0].cfg), proto.CloneOf(all[3].cfg)}
	shareSteps(all)
	one, other := all[0].cfg.GetEnsembleScheduling().GetStep(), all[3].cfg.GetEnsembleScheduling().GetStep()
	if one[0] != other[0] {
		t.Error("equal steps are not shared")
	}
	if one[1] == other[1] {
		t.Error("steps of two versions of a model are shared")
	}
	if !proto.Equal(all[0].cfg, before[0]) || !proto.Equal(all[3].cfg, before[1]) {
		t.Errorf("the configurations have become %v and %v, want %v", all[0].cfg, all[3].cfg, before)
	}
}
