package load

import (
	"slices"
	"time"
)

// Arrivals returns the times at which the requests of an open loop arrive, after the start of the run: for simulations
// of the same traffic.
func (p *Plan) Arrivals() []time.Duration { return slices.Collect(p.times()) }
