package telemetry

import (
	"slices"
	"sync"

	"github.com/tutti-server/tutti/core/tensor"
)

// MoveReason says why a tensor was copied to another place.
type MoveReason uint8

// The reasons.
const (
	// ForDevice: a step at a device reads what is on the host.
	ForDevice MoveReason = iota
	// ForHost: a step on the host reads what is at a device.
	ForHost
	// ForPeer: a step at a device reads what is at another one.
	ForPeer
	// ForResponse: the answer takes what is at a device.
	ForResponse
	// ForBatch: tensors of a batch that only the host can join or cut.
	ForBatch
	// ForCapture: what is at a device is kept for people to look at.
	ForCapture
	numMoveReasons
)

var moveReasons = [numMoveReasons]string{"device_step", "host_step", "other_device", "response", "batch", "capture"}

// String returns the label's value.
func (r MoveReason) String() string { return moveReasons[r] }

// Move is one kind of copy: a tensor of a model, from, to and why.
type Move struct {
	// Tensor is the input that was read, or the output that was answered.
	Tensor   string
	From, To tensor.Place
	Reason   MoveReason
	// Count and Bytes are what was copied so far.
	Count, Bytes uint64
}

// Ledger counts the copies that a model's tensors made necessary. The zero value is
// ready to use, and it is safe for concurrent use.
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

// List returns what was copied, in the order of the first copies.
func (l *Ledger) List() []Move {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.moves)
}
