package deadline

const (
	// doubt is the part of the deviation of batches' times by which predictions are longer.
	doubt = 0.5
	// room is how much longer than predicted a request with room to spare may take.
	room = 0.5
)

// Margins judges requests for a batch that takes Batch from Now on, before Rest until the response. Times are in ns.
type Margins struct {
	Now, Batch, Rest int64
	// Deviation is that of the model's Latency.
	Deviation float64
}

// Ends returns the time until which the batch's requests need, with some doubt.
func (m *Margins) Ends() int64 { return m.Now + int64(float64(m.Batch+m.Rest)*(1+doubt*m.Deviation)) }

// Safe returns the least deadline of requests with room to spare. While more requests are queued than a batch takes, those with less room
// are left out: any delay makes them late, and then what was executed for them is lost.
func (m *Margins) Safe() int64 { return m.Ends() + int64(room*float64(m.Batch+m.Rest)) }
