package sequence

import (
	"math"
	"time"

	"github.com/tutti-server/tutti/proto/modelconfig"
)

// Rules are the sequence batching rules of one model.
type Rules struct {
	// Oldest picks that strategy; otherwise it is direct.
	Oldest bool
	// Slots is how many sequences an instance takes at a time; at least 1.
	Slots int
	// Delay is how long a direct batch may wait until Utilization of the slots are
	// ready; it is 0 when there is nothing to wait for.
	Delay       time.Duration
	Utilization float32
	// Ordered keeps batches of the oldest strategy from taking a request out of turn.
	Ordered bool
	// Idle is how long a sequence may go without a request.
	Idle time.Duration
	// Iterative lets requests come without a correlation id, each a sequence by itself.
	Iterative bool
	// Queued and Backlog hold all batches back until so many requests wait in the slots,
	// and so many in the backlog, for the first time; of the oldest strategy a slot's
	// first request counts. 0 holds nothing back. They are for tests.
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

// micros bounds what a configuration says, so that times never overflow.
func micros(n uint64) time.Duration {
	return time.Duration(min(n, uint64(math.MaxInt64/4/time.Microsecond))) * time.Microsecond
}
