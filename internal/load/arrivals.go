package load

import "time"

// Arrivals returns the times at which the requests of an open loop arrive, after the start of the run: for simulations
// of the same traffic.
func (p *Plan) Arrivals() (list []time.Duration) {
	gaps := p.gaps()
	for at := gaps(); ; at += gaps() {
		i := len(list)
		if p.Requests > 0 && i >= p.Requests || p.Requests <= 0 && i > 0 && i >= p.Least && at >= p.Duration {
			return list
		}
		list = append(list, at)
	}
}
