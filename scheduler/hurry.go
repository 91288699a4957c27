package scheduler

// Hurrier is a Scheduler whose batches may wait for more works.
type Flusher interface {
	// Hurry has batches go with what there is from now on: their model is about to
	// end, and nobody who waits for an answer shall wait for requests that do not come.
	Flush()
}

// Hurry has s not wait for more works, if it ever does.
func Flush(s Scheduler) {
	if h, ok := s.(Flusher); ok {
		h.Flush()
	}
}

var _ Flusher = (*Queue)(nil)

// Hurry has what waits for a better batch go as it is.
func (s *Queue) Flush() {
	s.mu.Lock()
	s.hurry, s.hold = true, 0
	s.mu.Unlock()
	s.workers.Kick(s)
}
