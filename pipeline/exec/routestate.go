package exec

import (
	"slices"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/telemetry"
)

// Routes returns the state of the plan's routes and shadows: those of the plan's order first, then the shadows. It is never nil.
func (x *Executor) Routes() []infer.Route {
	list := []infer.Route{}
	for _, u := range x.routers {
		list = append(list, u.state())
	}
	for _, s := range x.shadows {
		if s != nil {
			list = append(list, s.state())
		}
	}
	return list
}

// state returns the state of a route. The counts of alternatives are read one by one while requests end.
func (u *router) state() infer.Route {
	r := infer.Route{Step: u.Step, Kind: u.Kind, Key: u.Key, Canary: u.canary.state()}
	for i, a := range u.Alternatives {
		c := u.counts[i]
		succeeded, failed := c.Succeeded.Load(), c.Failed.Load()
		r.Alternatives = append(r.Alternatives, infer.Alternative{
			Model: a.Name, Share: c.Share(), Requests: succeeded + failed, Errors: failed, MeanNs: c.Ns.Load() / max(succeeded, 1),
		})
	}
	return r
}

// state returns the state of a canary; nil for nil.
func (c *canary) state() *infer.Canary {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	its, own := &c.seen[0], &c.seen[1]
	s := &infer.Canary{
		State: infer.CanaryRunning, Reason: c.reason, Stages: slices.Clone(c.Stages), Stage: min(c.stage+1, len(c.Stages)),
		Requests: its.requests, Errors: its.failed, OwnRequests: own.requests, OwnErrors: own.failed,
	}
	switch {
	case c.reason != "":
		s.State = infer.CanaryRolledBack
	case c.ended:
		s.State = infer.CanaryPassed
	default:
		s.Remaining = max(int64(c.Requests)-its.requests, 0)
	}
	if c.MaxDrift >= 0 {
		s.Drift = &infer.Drift{Copies: c.copies, Different: c.drift, Max: c.MaxDrift}
	}
	return s
}

// state returns the state of a shadow.
func (s *shadow) state() infer.Route {
	result := func(r telemetry.ShadowResult) uint64 { return s.counts.Results[r].Load() }
	return infer.Route{Step: s.Step, Kind: "shadow", Shadow: &infer.Shadow{
		Model: s.Name, Share: s.Share, InFlight: s.inFlight.Load(), MaxInFlight: s.InFlight,
		Equal: result(telemetry.ShadowEqual), Different: result(telemetry.ShadowDifferent), Failed: result(telemetry.ShadowFailed), Dropped: result(telemetry.ShadowDropped),
	}}
}
