package telemetry

// Refusal is why a request was not executed.
type Refusal uint8

// The refusals.
const (
	// QueueFull: the queue of its priority was full.
	QueueFull Refusal = iota
	// QueueTimeout: it waited longer than its queue allows.
	QueueTimeout
	// DeadlinePassed: its deadline passed while it waited.
	DeadlinePassed
	// ClientGone: its client cancelled it or disconnected.
	ClientGone
	// NotServing: the model has no instance for it.
	NotServing
	// NoSequence: its sequence could not get, or lost, a slot.
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
