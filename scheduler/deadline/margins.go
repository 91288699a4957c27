package deadline

const (
	// spare is the part of the time of a request alone that a request must have left when it arrives, if others wait.
	spare = 0.3
	// busy is the part of that time from which on others count as waiting.
	busy = 0.25
	// doubt is the part of the deviation of batches' times by which predictions are longer.
	doubt = 0.5
	// room is how much longer than predicted a request with room to spare may take.
	room = 0.5
)

// Admits reports whether a request enters that has a time left, is expected to take a time, and would take a time alone; all in ns. While
// others wait it needs some time to spare: it would be dropped later, when its client has waited in vain.
func Admits(left, takes, alone int64) bool {
	return takes <= left && (takes+int64(spare*float64(alone)) <= left || takes-alone < int64(busy*float64(alone)))
}

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
