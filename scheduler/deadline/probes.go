package deadline

// Probes lets requests through that would be refused, so that an estimate which is too long does not refuse everything for ever: without
// executions nothing is learned. A request is let through while nothing else is there, so that it costs no other request anything; after
// one that was late the next one waits, twice as long each time. The zero value is ready. It is not safe for concurrent use.
type Probes struct {
	wait, next int64 // ns
}

const (
	// firstWait and longestWait bound the wait after a probe that was late.
	firstWait   = 5e6
	longestWait = 1e9
)

// Try reports whether a request may be let through at a time.
func (p *Probes) Try(now int64) bool {
	if now < p.next {
		return false
	}
	p.next = now + max(p.wait, firstWait)
	return true
}

// Ended notes whether a request that was let through, or another one, has met its deadline.
func (p *Probes) Ended(now int64, inTime bool) {
	if inTime {
		p.wait, p.next = 0, 0
		return
	}
	p.wait = min(max(2*p.wait, firstWait), longestWait)
	p.next = now + p.wait
}
