package overview

import (
	"slices"
	"strconv"
)

// Executions counts the batches that models executed in an interval of time, in microseconds since 1970; of all models if the list is empty.
// The counters are read once a second: the interval that is returned is the shortest between two readings that covers the given one, within
// the last minute. ok is false where no two readings are near.
func (w *Window) Executions(fromUs, toUs int64, models []string) (from, to int64, executed uint64, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	oldest := max(1, w.second-windowSize+1)
	a, b := oldest, w.second
	for i := oldest; i <= w.second; i++ {
		if w.times[i%windowSize] <= fromUs {
			a = i
		}
		if w.times[i%windowSize] >= toUs {
			b = i
			break
		}
	}
	if a >= b {
		return 0, 0, 0, false
	}
	for key, s := range w.versions {
		if len(models) > 0 && !slices.Contains(models, key.model) || w.set.Models.Platform(key.model, strconv.FormatInt(key.version, 10)) == "ensemble" {
			continue // an ensemble executes no batches itself
		}
		executed += s.executions(b) - s.executions(a)
	}
	return w.times[a%windowSize], w.times[b%windowSize], executed, true
}

// executions returns the counter at a sample; 0 before the first one, when the version had executed nothing.
func (s *samples) executions(at int) uint64 {
	if at < s.first {
		return 0
	}
	return s.all[at%windowSize].Executions
}
