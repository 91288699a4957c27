package lab

import (
	"context"
	"fmt"
	"slices"

	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/pipeline/plan"
)

// Walk executes a sample step by step and returns the inputs of each node.
func (l *Lab) Walk(ctx context.Context, p *plan.Plan, sample []client.Tensor) (inputs [][]client.Tensor, err error) {
	slots := make([]client.Tensor, p.Slots)
	for i := range p.Inputs {
		name := p.Signature.Inputs[i].Name
		k := slices.IndexFunc(sample, func(t client.Tensor) bool { return t.Name == name })
		if k >= 0 {
			slots[p.Inputs[i]] = sample[k]
		} else if !p.Signature.Inputs[i].Optional {
			return nil, fmt.Errorf("a sample request has no input '%s'", name)
		}
	}
	for i := range p.Nodes {
		node := &p.Nodes[i]
		list := inputsOf(node, slots)
		inputs = append(inputs, list)
		c, err := l.NewCall(node.Model, node.Version, list, 1)
		if err != nil {
			return nil, err
		}
		outputs, err := l.Outputs(ctx, c)
		c.Release()
		if err != nil {
			return nil, err
		}
		for port, slot := range node.Out {
			name := node.Signature.Outputs[port].Name
			if k := slices.IndexFunc(outputs, func(t client.Tensor) bool { return t.Name == name }); k >= 0 && slot != plan.None {
				slots[slot] = outputs[k]
			}
		}
	}
	return inputs, nil
}

// inputsOf returns the inputs of a step: the tensors of its slots with the batch dimension that its model has.
func inputsOf(node *plan.Node, slots []client.Tensor) (list []client.Tensor) {
	for port, slot := range node.In {
		if slot == plan.None || slots[slot].Data == nil && slots[slot].Shape == nil {
			continue
		}
		t := slots[slot]
		t.Name = node.Signature.Inputs[port].Name
		switch rule := node.Rules[port]; {
		case rule == plan.Strip && len(t.Shape) > 0:
			t.Shape = t.Shape[1:]
		case rule == plan.Prepend:
			t.Shape = append([]int64{1}, t.Shape...)
		}
		list = append(list, t)
	}
	return list
}
