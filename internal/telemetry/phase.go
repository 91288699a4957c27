package telemetry

import "sync/atomic"

// phase is a part of a request's duration.
type phase uint8

const (
	inQueue phase = iota
	inInput
	inInfer
	inOutput
	inTotal
	numPhases
)

var phaseNames = [numPhases]string{"queue", "input", "infer", "output", "total"}

const nsPerSecond = 1e9

func seconds(ns int64) float64 { return float64(ns) * (1 / nsPerSecond) }

// spread holds the distributions of the phases of requests. A phase of 0 ns is not counted: the exporter knows the
// number of requests.
type spread struct {
	// straight counts requests that were executed at once, without gathering or waiting: infer and total are equal.
	// Their cost matters most, so they are counted once; a scrape adds them to both.
	straight dist
	// by holds all other requests by phase; nil before the first one.
	by atomic.Pointer[byPhase]
}

// straight reports whether the model's execution was the whole duration of a task.
func straight(enqueued int64, t *Times) bool {
	return t.Start <= enqueued && t.InputEnd <= t.Start && t.End <= t.InferEnd
}

// observe counts one request.
//
// hot: one atomic add for a straight one, else one for each phase that took time.
func (s *spread) observe(enqueued int64, t *Times) {
	if straight(enqueued, t) {
		if ns := t.InferEnd - t.Start; ns > 0 {
			s.straight.observe(secondsScale, seconds(ns))
		}
		return
	}
	by := s.phases()
	by.phase(inQueue, t.Start-enqueued)
	by.phase(inInput, t.InputEnd-t.Start)
	by.phase(inInfer, t.InferEnd-t.InputEnd)
	by.phase(inOutput, t.End-t.InferEnd)
	by.phase(inTotal, t.End-enqueued)
}

// byPhase are distributions by phase.
type byPhase [numPhases]timed

// phase counts one phase.
func (b *byPhase) phase(p phase, ns int64) {
	if ns > 0 {
		b[p].observe(secondsScale, seconds(ns))
	}
}

// phases returns the distributions by phase and allocates them on first use.
func (s *spread) phases() *byPhase {
	if b := s.by.Load(); b != nil {
		return b
	}
	s.by.CompareAndSwap(nil, new(byPhase))
	return s.by.Load()
}

// tally returns the distribution of a phase of n requests, nil when it has none.
func (s *spread) tally(a *arena, p phase, n, ns uint64) *tally {
	straight, by := s.straight.used() && (p == inInfer || p == inTotal), s.by.Load()
	if !straight && (by == nil || !by[p].used()) {
		return nil
	}
	t := a.newTally(secondsScale)
	if by != nil {
		t.add(&by[p].dist)
	}
	if straight {
		t.add(&s.straight)
	}
	t.fill(n)
	t.sum = float64(ns) / nsPerSecond
	return t
}

// phase returns the distribution of a phase of the model's requests, nil when it has none.
func (m *Model) phase(a *arena, p phase) *tally {
	r := m.Requests()
	n, ns := r.Count, uint64(0)
	switch p {
	case inQueue:
		ns = m.QueueNs()
	case inInput:
		ns = r.InputNs
	case inInfer:
		ns = r.InferNs
	case inOutput:
		ns = r.OutputNs
	case inTotal, numPhases:
		hits, _ := m.Hits()
		n, ns = n+hits, m.TotalNs()
	}
	return m.spread.tally(a, p, n, ns)
}

// depths is the distribution of the queue's length at each arrival.
type depths struct {
	dist
	sum atomic.Uint64
}

// Slack counts a request with a deadline: the nanoseconds left when its response was complete, 0 or less if it was
// late.
//
// hot: atomic adds.
func (m *Model) Slack(ns int64) {
	if ns <= 0 {
		m.late.Add(1)
		return
	}
	m.slack.observe(slackScale, seconds(ns))
	m.slackNs.Add(uint64(ns))
}

func (m *Model) slackTally(a *arena) *tally {
	late := m.late.Load()
	if late == 0 && !m.slack.used() {
		return nil
	}
	t := a.newTally(slackScale)
	t.put(0, late)
	t.add(&m.slack)
	t.sum = float64(m.slackNs.Load()) / nsPerSecond
	return t
}

func (m *Model) depthTally(a *arena) *tally {
	if !m.depth.used() {
		return nil
	}
	t := a.newTally(depthScale)
	t.add(&m.depth.dist)
	t.sum = float64(m.depth.sum.Load())
	return t
}

// ppm is the unit of summed shares.
const ppm = 1_000_000

func (m *Model) paddingTally(a *arena) *tally {
	none := m.unpadded.Load()
	if none == 0 && !m.padShare.used() {
		return nil
	}
	t := a.newTally(shareScale)
	t.put(0, none)
	t.add(&m.padShare)
	t.sum = float64(m.padPPM.Load()) / ppm
	return t
}

func (m *Model) batchTally(a *arena) *tally {
	t := a.newTally(batchScale)
	m.Batches(func(rows int, b Totals) bool {
		t.put(float64(rows), b.Count)
		t.sum += float64(rows) * float64(b.Count)
		return true
	})
	return t
}
