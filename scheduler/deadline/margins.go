package deadline

// A device is contended where a batch that executes delays later steps of the same requests, or other queues. There a request that will be
// late must not be executed, so predictions are long and only requests with time to spare enter. Elsewhere what is executed for a late
// request costs nobody anything, and a queue that runs empty does: predictions are short, and of many requests the safe ones execute first.
const (
	// spare is the part of the time of a request alone that a request must have left when it arrives at a contended device, if others wait.
	spare = 0.3
	// busy is the part of that time from which on others count as waiting.
	busy = 0.25
	// doubt is the part of the deviation of batches' times by which predictions are longer on contended devices, and shorter elsewhere.
	doubt = 0.5
	// room is how much longer than predicted a request with room to spare may take on contended devices.
	room = 0.5
	// caution is the same elsewhere, in deviations.
	caution = 1.5
)

// Admits reports whether a request enters that has a time left, is expected to take a time, and would take a time alone; all in ns. While
// others wait it needs a part of that last time to spare: it would be dropped later, when its client has waited in vain. An alone of 0
// asks for none.
func Admits(left, takes, alone int64) bool {
	return takes <= left && (takes+int64(spare*float64(alone)) <= left || takes-alone < int64(busy*float64(alone)))
}

// Doubt returns the factor for the prediction of a request that arrives, from the deviation of the batches' times.
func Doubt(deviation float64, contended bool) float64 {
	if contended {
		return 1 + doubt*deviation
	}
	return 1 - doubt*deviation
}

// Margins judges requests for a batch that takes Batch from Now on, before Rest until the response. Times are in ns.
type Margins struct {
	Now, Batch, Rest int64
	// Deviation is that of the model's Latency.
	Deviation float64
	// Contended says that the batch delays later steps, or other queues.
	Contended bool
}

// Ends returns the time until which the batch's requests need.
func (m *Margins) Ends() int64 {
	factor := Doubt(m.Deviation, m.Contended)
	if m.Contended {
		return m.Now + int64(float64(m.Batch+m.Rest)*factor)
	}
	return m.Now + m.Batch + int64(float64(m.Rest)*factor)
}

// Safe returns the least deadline of requests with room to spare. While more requests are queued than a batch takes, those with less room
// are left out: any delay makes them late, and then what was executed for them is lost.
func (m *Margins) Safe() int64 {
	more := room
	if !m.Contended {
		more = caution * m.Deviation
	}
	return m.Ends() + int64(more*float64(m.Batch+m.Rest))
}
