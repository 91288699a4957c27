// Package history keeps the figures of the server and of every model over time: in steps of 10 seconds for an hour in memory, and in
// steps of a minute for a week in a SQLite file where the server has a data folder.
//
// - history.go: Store, which samples the counters; its memory
// - frame.go: the figures of one step, and their encoding
// - query.go: Store as an inspect.History
// - disk.go: the file
//
// The memory is at most 64 MiB, which holds the hour of 4,600 models that are busy all the time. Of more, the oldest steps become steps of
// a minute, which holds the hour of 25,000 busy models, and then go. A model takes nothing while it has no requests. The file is at most
// 256 MiB: the oldest steps go first, and before those that are older than a week.
package history

import (
	"log/slog"
	"sync"
	"time"

	"github.com/tutti-server/tutti/internal/inspect"
	"github.com/tutti-server/tutti/internal/telemetry"
)

const (
	step      = 10 * time.Second // the length of a frame in memory, and of the windows from which latencies come
	minute    = time.Minute      // the length of a frame in the file
	kept      = time.Hour        // in memory
	maxPoints = 64 << 20 / pointBytes
)

// Settings configure a Store. The functions must be safe for concurrent use.
type Settings struct {
	Counters func() []inspect.Counters  // returns the totals of all served versions
	Server   func() *inspect.ServerView // returns the figures of the server
	// Quantiles returns the latencies of a model's traced requests that ended between two times of telemetry.Now, 0 for none. Optional.
	Quantiles func(model string, from, to int64) (p50, p99 int64)
	// File is the path of the file; empty for none. Its folder is created.
	File string
	Log  *slog.Logger

	_ struct{}
}

// Store samples the counters of all models every 10 seconds. It is safe for concurrent use.
//
// Lifecycle: New starts the sampling; Close ends it and writes what is not written yet.
type Store struct {
	set   Settings
	clock func() (mono int64, wall time.Time)
	over  chan struct{}
	done  sync.WaitGroup
	disk  *disk // nil without a data folder

	mu        sync.Mutex
	names     names
	frames    []frame // oldest first; guarded by mu
	points    int     // of all frames; guarded by mu
	unwritten int     // the last frames that the file does not have; guarded by mu
	prev      map[versionKey]*totals
	limit     int     // the most points
	at        int64   // the time of the last sample
	cpu       float64 // the seconds of processor time at the last sample
}

type versionKey struct {
	model   string
	version int64
}

// totals are the counters of a version at a sample.
type totals struct {
	requests, failures, rows, executions, queueNs, computeNs uint64
	sample                                                   int64 // its time
}

// New returns a Store and starts its sampling. A file that cannot be used is logged; the figures are in memory only then.
func New(set Settings) *Store {
	s := newStore(set, func() (int64, time.Time) { return telemetry.Now(), time.Now() })
	if set.File != "" {
		s.disk = openDisk(set.File, set.Log, s.clock)
	}
	s.done.Go(s.run)
	return s
}

func newStore(set Settings, clock func() (int64, time.Time)) *Store {
	s := &Store{set: set, clock: clock, limit: maxPoints, over: make(chan struct{}), prev: map[versionKey]*totals{}, names: newNames()}
	s.at, _ = clock()
	s.cpu = set.Server().CPUSeconds
	return s
}

// Close ends the sampling. It must be called once. The error is of the file.
func (s *Store) Close() error {
	close(s.over)
	s.done.Wait()
	s.sample()
	s.write(true)
	return s.disk.close()
}

// run samples at the ends of the windows of latencies.
func (s *Store) run() {
	for {
		mono, _ := s.clock()
		t := time.NewTimer(step - time.Duration(mono)%step)
		select {
		case <-t.C:
			s.sample()
			s.write(false)
		case <-s.over:
			t.Stop()
			return
		}
	}
}

// sample stores the figures since the last sample.
func (s *Store) sample() {
	list, server := s.set.Counters(), s.set.Server()
	now, _ := s.clock()
	s.mu.Lock()
	defer s.mu.Unlock()
	took := now - s.at
	if took <= 0 {
		return
	}
	f := frame{start: s.at, end: now, server: serverPointOf(server, max(0, server.CPUSeconds-s.cpu)/time.Duration(took).Seconds())}
	s.cpu, s.at = server.CPUSeconds, now
	s.collect(&f, list, now)
	for i := range f.points {
		p := &f.points[i]
		if s.set.Quantiles != nil && p.requests+p.failures+p.executions > 0 {
			p50, p99 := s.set.Quantiles(s.names.list[p.series].name, f.start, f.end)
			p.p50, p.p99 = float32(p50), float32(p99)
		}
	}
	sortPoints(f.points)
	s.push(f)
}

// collect adds a point for each model with something to do since the last sample; mu is held.
func (s *Store) collect(f *frame, list []inspect.Counters, now int64) {
	at := map[string]int{} // the points of models with several versions
	for i := range list {
		c := &list[i]
		key := versionKey{c.Name, c.Version}
		was := s.prev[key]
		if was == nil {
			was = &totals{}
			s.prev[key] = was
		}
		p := point{
			requests: since(c.Requests, was.requests), failures: since(c.Failures, was.failures), rows: since(c.Rows, was.rows),
			executions: since(c.Executions, was.executions), waiting: count(uint64(max(0, c.Waiting))), //nolint:gosec // it is positive
			queueNs: float32(delta(c.QueueNs, was.queueNs)), computeNs: float32(delta(c.ComputeNs, was.computeNs)),
		}
		*was = totals{c.Requests, c.Failures, c.Rows, c.Executions, c.QueueNs, c.ComputeNs, now}
		if p.idle() {
			continue
		}
		if j, ok := at[c.Name]; ok {
			f.points[j].add(&p)
			continue
		}
		at[c.Name] = len(f.points)
		p.series = s.names.numberOf(c.Name, c.Ensemble)
		f.points = append(f.points, p)
	}
	for key, was := range s.prev {
		if was.sample != now {
			delete(s.prev, key)
		}
	}
}

// delta returns what a counter has gained. One that is less than before has begun again.
func delta(now, was uint64) uint64 {
	if now < was {
		return now
	}
	return now - was
}

func since(now, was uint64) uint32 { return count(delta(now, was)) }

// push appends a frame and removes what is too old or too much; mu is held.
func (s *Store) push(f frame) {
	s.frames = append(s.frames, f)
	s.points += len(f.points)
	s.unwritten++
	for i := range f.points {
		s.names.use(f.points[i].series, 1)
	}
	for len(s.frames) > 1 && (s.frames[0].end < f.end-int64(kept)) {
		s.replace(0, 1, nil)
	}
	for s.points > s.limit && len(s.frames) > 1 {
		s.shrink()
	}
}

// shrink makes the oldest steps one of a minute, or drops the oldest if all but those of the last minutes are; mu is held.
func (s *Store) shrink() {
	const parts = int(minute / step)
	for i := range len(s.frames) - 2*parts {
		if s.frames[i].end-s.frames[i].start < int64(minute)/2 {
			s.replace(i, parts, []frame{merge(s.frames[i : i+parts])})
			return
		}
	}
	s.replace(0, 1, nil)
}

// replace puts frames in the place of n others; mu is held.
func (s *Store) replace(i, n int, by []frame) {
	count := func(list []frame, d int) {
		for k := range list {
			s.points += d * len(list[k].points)
			for j := range list[k].points {
				s.names.use(list[k].points[j].series, d)
			}
		}
	}
	count(by, 1) // before: a name that both have stays
	count(s.frames[i:i+n], -1)
	next := append(make([]frame, 0, cap(s.frames)), s.frames[:i]...)
	s.frames = append(append(next, by...), s.frames[i+n:]...)
	s.unwritten = min(s.unwritten, len(s.frames))
}

// write passes the frames of a minute that has ended to the file, with all those that are left.
func (s *Store) write(all bool) {
	s.mu.Lock()
	list := s.frames[len(s.frames)-s.unwritten:]
	if s.disk == nil || len(list) == 0 || !all && list[len(list)-1].end-list[0].start < int64(minute)-int64(step)/2 {
		s.mu.Unlock()
		return
	}
	s.unwritten = 0
	f := merge(list)
	series := make([]name, len(f.points))
	for i := range f.points {
		series[i] = s.names.list[f.points[i].series]
	}
	s.mu.Unlock()
	mono, wall := s.clock()
	f.start, f.end = wall.UnixNano()-(mono-f.start), wall.UnixNano()-(mono-f.end)
	s.disk.enqueue(minuteFrame{frame: f, names: series})
}

var _ inspect.History = (*Store)(nil)
