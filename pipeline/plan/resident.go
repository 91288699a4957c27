package plan

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
)

// checkResident refuses a plan with a copy between two steps of an ensemble that has the parameter require_resident.
// The upload of a request's inputs and the download of its outputs are no such copies. Neither are BYTES tensors, which
// are on the host at both ends of an edge, wherever the steps run.
func (c *compiler) checkResident() error {
	for _, l := range c.levels {
		if !config.RequireResident(l.cfg) {
			continue
		}
		if list := c.plan.copiesBetween(l.path()); len(list) > 0 {
			return l.fail(config.Coded(config.NotResident, "parameters."+config.ResidentParam, status.Errorf(status.InvalidArg,
				"ensemble '%s' has the parameter %s, but %s; run both steps of each edge on one device by their instance_group, or remove the parameter",
				l.name(), config.ResidentParam, strings.Join(list, "; "))))
		}
	}
	return nil
}

// copiesBetween describes the copies between two steps of the ensemble with this path, its nested ones included.
func (p *Plan) copiesBetween(path []string) (list []string) {
	inside := func(n *Node) bool {
		return len(n.Ensembles) >= len(path) && slices.Equal(n.Ensembles[:len(path)], path)
	}
	for from := range p.Nodes {
		a := &p.Nodes[from]
		for port, s := range a.Out {
			if s == None || !inside(a) || a.Signature.Outputs[port].OnHost() {
				continue
			}
			for _, u := range p.Consumers[s] {
				b := &p.Nodes[u.Node]
				if why := p.copyBetween(a, b, u.Port); inside(b) && why != "" {
					list = append(list, fmt.Sprintf("tensor '%s' from step '%s' (at %s) to step '%s' input '%s' (at %s) would be copied %s",
						p.Names[s], a.Name, p.sideText(from), b.Name, b.Signature.Inputs[u.Port].Name, p.sideText(int(u.Node)), why))
				}
			}
		}
	}
	return list
}

// copyBetween describes the copy of a tensor from step a to an input of step b; empty when there is none in any request.
func (p *Plan) copyBetween(a, b *Node, input int32) string {
	from, to := a.location(), b.location()
	way := p.short(from) + " -> " + p.short(to)
	switch {
	case !from.OnDevice && !to.OnDevice, b.Signature.AnyPlace:
		return ""
	case from.OnDevice && to.OnDevice && b.Signature.Inputs[input].OnHost():
		return p.short(from) + " -> host, since it is read on the host there"
	case from.OnDevice != to.OnDevice, p.Devices == 0 && (from != to || bits.OnesCount64(from.Devices) > 1):
		return way
	}
	return ""
}

// sideText names where node i runs and why.
func (p *Plan) sideText(i int) string { return p.atText(i) + p.Nodes[i].why() }
