package scheduler

// Counts returns how many workers there are, and how many of them are parked.
func (p *Workers) Counts() (started, parked int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.started, len(p.parked)
}
