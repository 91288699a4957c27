package repository

import (
	"github.com/tutti-server/tutti/internal/inspect"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/pipeline/plan"
)

// addFlow adds to the view of a node what it does in the data flow of its ensemble, with its counts.
func addFlow(v *inspect.NodeView, p *plan.Plan, stats *telemetry.Model) {
	n := &p.Nodes[v.Node]
	v.Kind, v.FallbackOf, v.Within = n.Kind(), n.FallbackOf, p.Within(v.Node)
	if f := n.Fault; f != nil {
		v.Fault = &inspect.FaultView{Rules: f.Text(), Fallback: f.Fallback, Absorbed: f.Absorbed}
		if f.Absorbed {
			v.Fault.Used = stats.ReplacementOf(n.Name, f.Fallback).Used.Load()
		}
	}
	if route, alternative := p.RouteOf(v.Node); route != nil {
		v.Share = share(route, alternative, stats)
	}
	if n.Operation == nil {
		return
	}
	switch op := n.Operation; {
	case op.When != nil:
		c := stats.ConditionOf(n.Owner())
		v.Rows = &inspect.RowsView{Step: n.Owner(), Held: c.Held.Load(), Failed: c.Failed.Load()}
	case op.Demux != nil:
		f := stats.FanOutOf(n.Owner())
		v.Items = &inspect.ItemsView{Divided: f.Divided.Load(), Items: f.Items.Load(), Groups: f.Groups.Load()}
	case op.Shadow != nil:
		c := stats.ShadowOf(op.Shadow.Step, op.Shadow.Name)
		v.Copies = &inspect.ShadowView{
			Step: op.Shadow.Step, Model: op.Shadow.Name, Share: op.Shadow.Share,
			Equal: c.Results[telemetry.ShadowEqual].Load(), Different: c.Results[telemetry.ShadowDifferent].Load(),
			Failed: c.Results[telemetry.ShadowFailed].Load(), Dropped: c.Results[telemetry.ShadowDropped].Load(),
		}
	}
}

// share returns the view of an alternative.
func share(route *plan.Route, alternative int, stats *telemetry.Model) *inspect.ShareView {
	name := route.Alternatives[alternative].Name
	c := stats.RouteOf(route.Step, route.Kind, name)
	s := &inspect.ShareView{
		Step: route.Step, Kind: route.Kind, Alternative: name, Share: c.Share(), Succeeded: c.Succeeded.Load(), Failed: c.Failed.Load(),
	}
	if s.Succeeded > 0 {
		s.MeanNs = c.Ns.Load() / s.Succeeded
	}
	return s
}
