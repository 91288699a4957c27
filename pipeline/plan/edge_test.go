package plan_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/pipeline/plan"
)

// edges is a Lookup of models with one input x and one output y of FP32. What they are called says where they run: host, gpu, or edge
// for either side. small is an edge with one output element.
type edges struct{}

func (edges) Model(name string, _ int64) (plan.Model, error) {
	out := int64(1000)
	if name == "small" {
		out = 1
	}
	m := plan.Model{Signature: &config.Signature{
		Model: name, Version: 1,
		Inputs:  []config.Port{{Name: "x", DType: tensor.FP32, Dims: tensor.Of(-1)}},
		Outputs: []config.Port{{Name: "y", DType: tensor.FP32, Dims: tensor.Of(out)}},
	}}
	gpu := tensor.Place{Kind: tensor.Device}
	switch name {
	case "gpu":
		m.Places = []tensor.Place{gpu}
	case "edge", "small":
		m.Places, m.Edge = []tensor.Place{{}, gpu}, true
	}
	return m, nil
}

// TestEdges checks the sides of steps that run where their neighbours run.
func TestEdges(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		chain  []string
		want   string // d for device, h for host
		copies int
	}{
		{[]string{"edge", "edge"}, "hh", 0},
		{[]string{"host", "edge", "host"}, "hhh", 0},
		{[]string{"host", "edge", "edge", "gpu", "small"}, "hdddd", 2},
		{[]string{"gpu", "edge", "gpu"}, "ddd", 2},
		{[]string{"gpu", "host", "edge", "host"}, "dhhh", 2},
		{[]string{"gpu", "small", "host", "edge"}, "ddhh", 2},
	} {
		var text strings.Builder
		fmt.Fprintf(&text, `name: "chain" platform: "ensemble" input { name: "t0" data_type: TYPE_FP32 dims: [ -1 ] }
			output { name: "t%d" data_type: TYPE_FP32 dims: [ -1 ] } ensemble_scheduling {`, len(tt.chain))
		for i, name := range tt.chain {
			fmt.Fprintf(&text, ` step { model_name: "%s" model_version: -1 input_map { key: "x" value: "t%d" } output_map { key: "y" value: "t%d" } }`, name, i, i+1)
		}
		cfg, err := config.Parse("config.pbtxt", []byte(text.String()+"}"))
		if err != nil {
			t.Fatal(err)
		}
		p, err := plan.Compile(cfg, 1, edges{})
		if err != nil {
			t.Fatal(err)
		}
		sides := make([]byte, len(p.Nodes))
		for i := range p.Nodes {
			if sides[i] = 'h'; p.Nodes[i].OnDevice {
				sides[i] = 'd'
			}
		}
		got := string(sides)
		if got != tt.want || len(p.Copies) != tt.copies {
			t.Errorf("%v: sides %s with %d copies, want %s with %d\n%s", tt.chain, got, len(p.Copies), tt.want, tt.copies, p.Text())
		}
	}
}
