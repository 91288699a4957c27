package exec

import "github.com/tutti-server/tutti/internal/telemetry"

// arrive notes a request that begins, for the pace of background requests.
//
// hot: one load while there are no background requests.
func (r *run) arrive() {
	b := r.x.background
	switch {
	case r.req.Background:
		b.Begin(r.started)
	case b.Watching() && !r.req.Nested:
		r.arrived = true
		b.Arrive(r.started)
	}
}

// leave notes the end of a request that arrive has noted.
//
// hot: two comparisons while there are no background requests.
func (r *run) leave() {
	switch {
	case r.req.Background:
		r.x.background.End(telemetry.Now())
	case r.arrived:
		r.arrived = false
		r.x.background.Leave(telemetry.Now())
	}
}
