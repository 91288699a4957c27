package telemetry

import (
	"slices"
	"sync"

	"github.com/tutti-server/tutti/core/tensor"
)

// MoveReason is why a tensor was copied to another place. For example, an ONNX Runtime step on a GPU reads the
// output of a Python step: ForDevice.
type MoveReason uint8

// The reasons.
const (
	// ForDevice: a step on a device reads a tensor in host memory.
	ForDevice MoveReason = iota
	// ForHost: a step on the host reads a tensor in device memory.
	ForHost
	// ForPeer: a step on a device reads a tensor of another device.
	ForPeer
	// ForResponse: the response needs a tensor in device memory.
	ForResponse
	// ForBatch: only the host can gather or scatter the tensors of a batch.
	ForBatch
	// ForCapture: a tensor in device memory is captured.
	ForCapture
	numMoveReasons
)

var moveReasons = [numMoveReasons]string{"device_step", "host_step", "other_device", "response", "batch", "capture"}

// String returns the label's value.
func (r MoveReason) String() string { return moveReasons[r] }

// Move counts the copies of one tensor of a model between two places for one reason.
type Move struct {
	// Tensor is the name of the input that was read, or of the output of the response.
	Tensor   string
	From, To tensor.Place
	Reason   MoveReason
	// Count is the number of copies, Bytes their size.
	Count, Bytes uint64
}

// Ledger counts a model's copies between places. The zero value is ready to use, and it is safe for concurrent use.
type Ledger struct {
	mu    sync.Mutex
	moves []Move // guarded by mu
}

// Count adds one copy of n bytes.
//
// hot: a scan of a short list, no allocation once every kind was seen.
func (l *Ledger) Count(name string, from, to tensor.Place, reason MoveReason, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.moves {
		if m := &l.moves[i]; m.Tensor == name && m.From == from && m.To == to && m.Reason == reason {
			m.Count++
			m.Bytes += uint64(n)
			return
		}
	}
	l.moves = append(l.moves, Move{Tensor: name, From: from, To: to, Reason: reason, Count: 1, Bytes: uint64(n)})
}

// List returns the copies, in the order in which they first occurred.
func (l *Ledger) List() []Move {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.moves)
}

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
