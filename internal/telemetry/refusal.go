package telemetry

// Refusal says why a request was not executed.
type Refusal uint8

// The refusals.
const (
	// QueueFull: the queue of its priority had no room.
	QueueFull Refusal = iota
	// QueueTimeout: it waited longer than its queue allows.
	QueueTimeout
	// DeadlinePassed: its deadline passed while it waited.
	DeadlinePassed
	// ClientGone: its client no longer waited.
	ClientGone
	// NotServing: the model has no instance that could take it.
	NotServing
	// NoSequence: it could not be given, or keep, a place for its sequence.
	NoSequence
	numRefusals
)

var refusals = [numRefusals]struct {
	name   string
	reason Reason
}{
	{"queue_full", Rejected},
	{"queue_timeout", Rejected},
	{"deadline", Canceled},
	{"client_gone", Canceled},
	{"not_serving", Backend},
	{"sequence", Rejected},
}

// String returns the label's value.
func (r Refusal) String() string { return refusals[r].name }

// Refused counts one request that failed after ns nanoseconds without being executed.
func (m *Model) Refused(why Refusal, ns int64) {
	m.refused[why].Add(1)
	m.Failed(refusals[why].reason, ns)
}

// Refusals returns how many requests were refused for a reason.
func (m *Model) Refusals(why Refusal) uint64 { return m.refused[why].Load() }
