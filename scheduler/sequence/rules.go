package sequence

import (
	"math"
	"time"

	"github.com/tutti-server/tutti/proto/modelconfig"
)

// Rules are the sequence batching rules of one model.
type Rules struct {
	// Oldest selects the oldest strategy; otherwise the strategy is direct.
	Oldest bool
	// Slots is the number of sequences per instance, at least 1.
	Slots int
	// Delay bounds how long a direct batch waits until Utilization of the slots are ready; 0 for no wait.
	Delay       time.Duration
	Utilization float32
	// Ordered keeps batches of the oldest strategy from executing a request before an earlier one.
	Ordered bool
	// Idle is the longest time that a sequence may be without a request.
	Idle time.Duration
	// Iterative accepts requests without a correlation id. Each is a sequence with one request.
	Iterative bool
	// Queued and Backlog delay all batches until so many requests wait in the slots, and so many in the backlog,
	// for the first time; with the oldest strategy only the first request of a slot counts. 0 delays nothing. They
	// are for tests.
	Queued, Backlog int
}

// RulesOf reads the rules of a completed configuration.
func RulesOf(cfg *modelconfig.ModelConfig) Rules {
	s, rows := cfg.GetSequenceBatching(), max(int(cfg.GetMaxBatchSize()), 1)
	r := Rules{Slots: rows, Idle: micros(s.GetMaxSequenceIdleMicroseconds()), Iterative: s.GetIterativeSequence()}
	if r.Idle == 0 {
		r.Idle = time.Second
	}
	if o := s.GetOldest(); o != nil {
		r.Oldest, r.Ordered = true, o.GetPreserveOrdering()
		if n := o.GetMaxCandidateSequences(); n > 0 {
			r.Slots = int(n)
		}
		return r
	}
	if u := s.GetDirect().GetMinimumSlotUtilization(); u > 0 {
		r.Utilization, r.Delay = u, micros(s.GetDirect().GetMaxQueueDelayMicroseconds())
	}
	return r
}

// micros converts microseconds and bounds them, so that times never overflow.
func micros(n uint64) time.Duration {
	return time.Duration(min(n, uint64(math.MaxInt64/4/time.Microsecond))) * time.Microsecond
}
