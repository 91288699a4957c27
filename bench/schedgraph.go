package main

import (
	"fmt"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/pipeline/plan"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// port declares an FP32 tensor of any width.
func port(name string) config.Port {
	return config.Port{Name: name, DType: tensor.FP32, Dims: tensor.Of(-1)}
}

// schedSignature returns the signature of a model with the given number of inputs and one output.
func schedSignature(inputs int) *config.Signature {
	s := &config.Signature{Model: "m", Version: 1, MaxBatch: 8, Outputs: []config.Port{port("OUT")}}
	for i := range inputs {
		s.Inputs = append(s.Inputs, port(fmt.Sprintf("IN%d", i)))
	}
	return s
}

// graph is the configuration of an ensemble, and its models.
type graph struct {
	cfg  *modelconfig.ModelConfig
	sigs map[string]*config.Signature
}

// Model returns a model of the graph.
func (g *graph) Model(name string, _ int64) (plan.Model, error) {
	if sig := g.sigs[name]; sig != nil {
		return plan.Model{Signature: sig}, nil
	}
	return plan.Model{}, fmt.Errorf("no model '%s'", name)
}

func newGraph(output string) *graph {
	io := func(name string) (string, modelconfig.DataType, []int64) {
		return name, modelconfig.DataType_TYPE_FP32, []int64{-1}
	}
	g := &graph{cfg: &modelconfig.ModelConfig{Name: "graph", Platform: "ensemble", MaxBatchSize: 8}, sigs: map[string]*config.Signature{"m": schedSignature(1)}}
	in, out := &modelconfig.ModelInput{}, &modelconfig.ModelOutput{}
	in.Name, in.DataType, in.Dims = io("t0")
	out.Name, out.DataType, out.Dims = io(output)
	g.cfg.Input, g.cfg.Output = []*modelconfig.ModelInput{in}, []*modelconfig.ModelOutput{out}
	g.cfg.SchedulingChoice = &modelconfig.ModelConfig_EnsembleScheduling{EnsembleScheduling: &modelconfig.ModelEnsembling{}}
	return g
}

// step adds one step.
func (g *graph) step(model, out string, in ...string) {
	inputs := map[string]string{}
	for i, name := range in {
		inputs[fmt.Sprintf("IN%d", i)] = name
	}
	e := g.cfg.GetEnsembleScheduling()
	e.Step = append(e.Step, &modelconfig.ModelEnsembling_Step{ModelName: model, ModelVersion: -1, InputMap: inputs, OutputMap: map[string]string{"OUT": out}})
}

// chain returns n models one after another.
func chain(n int) *graph {
	g := newGraph(fmt.Sprintf("t%d", n))
	for i := range n {
		g.step("m", fmt.Sprintf("t%d", i+1), fmt.Sprintf("t%d", i))
	}
	return g
}

// fan returns a model whose output n-2 others read, and a last model that reads all of theirs.
func fan(n int) *graph {
	g := newGraph("end")
	g.sigs["join"] = schedSignature(n - 2)
	g.step("m", "split", "t0")
	var all []string
	for i := range n - 2 {
		name := fmt.Sprintf("b%d", i)
		g.step("m", name, "split")
		all = append(all, name)
	}
	g.step("join", "end", all...)
	return g
}
