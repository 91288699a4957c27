package scheduler

// Hurrier is a Scheduler whose batches may wait for more works.
type Hurrier interface {
	// Hurry has batches go with what there is from now on: their model is about to
	// end, and nobody who waits for an answer shall wait for requests that do not come.
	Hurry()
}

// Hurry has s not wait for more works, if it ever does.
func Hurry(s Scheduler) {
	if h, ok := s.(Hurrier); ok {
		h.Hurry()
	}
}

var _ Hurrier = (*Station)(nil)

// Hurry has what waits for a better batch go as it is.
func (s *Station) Hurry() {
	s.mu.Lock()
	s.hurry, s.hold = true, 0
	s.mu.Unlock()
	s.workers.Kick(s)
}
