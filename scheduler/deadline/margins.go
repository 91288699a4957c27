package deadline

const (
	// doubt is how much longer than the estimate a request is expected to take, in deviations of the batches' times.
	doubt = 0.2
	// room and caution are how much longer than expected a request with room to spare may take: a part of that time, which is for
	// what the server does between batches, and deviations.
	room    = 0.1
	caution = 1.0
)

// Doubt returns the factor from an estimate to the time that a request is expected to take, from the deviation of the batches' times.
func Doubt(deviation float64) float64 { return 1 + doubt*deviation }

// Margins judges requests for a batch that takes Batch from Now on, before Rest until the response. Times are in ns.
type Margins struct {
	Now, Batch, Rest int64
	// Deviation is that of the model's Latency.
	Deviation float64
}

// Ends returns the time until which the batch's requests need.
func (m *Margins) Ends() int64 {
	return m.Now + int64(float64(m.Batch+m.Rest)*Doubt(m.Deviation))
}

// Safe returns the least deadline of requests with room to spare. While more requests are queued than a batch takes, those with less room
// are left out: a delay makes them late, and then what was executed for them is lost.
func (m *Margins) Safe() int64 {
	return m.Ends() + int64((room+caution*m.Deviation)*float64(m.Batch+m.Rest))
}
