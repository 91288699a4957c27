package tutti

import (
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/repository"
)

// overview is what the dashboard shows of the server. It looks at the counters once a
// second, so that there are rates when somebody comes.
type overview struct {
	s     *server
	began time.Time
	over  chan struct{}
	done  sync.WaitGroup

	mu     sync.Mutex
	second int                  // counts the looks, guarded by mu
	past   map[served]*lastLook // guarded by mu
}

var _ infer.Overview = (*overview)(nil)

// served is one version.
type served struct {
	model   string
	version int64
}

// minute is how many looks are remembered.
const minute = 61

// lastLook has the looks of the last minute at one version.
type lastLook struct {
	looks [minute]repository.Counters
	first int // the look that was the first
	last  int // the look at which it served last
	flows flows
}

func newOverview(s *server) *overview {
	v := &overview{s: s, began: time.Now(), over: make(chan struct{}), past: map[served]*lastLook{}}
	v.done.Go(v.watch)
	return v
}

func (v *overview) close() {
	close(v.over)
	v.done.Wait()
}

// watch looks once a second.
func (v *overview) watch() {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		v.look()
		select {
		case <-tick.C:
		case <-v.over:
			return
		}
	}
}

// look remembers the counters as they are; versions that were never asked take no room.
func (v *overview) look() {
	list := v.s.repo.Counters()
	v.mu.Lock()
	defer v.mu.Unlock()
	v.second++
	for i := range list {
		p := &list[i]
		key := served{p.Name, p.Version}
		h := v.past[key]
		if h == nil {
			if p.Requests+p.Failures == 0 {
				continue
			}
			h = &lastLook{first: v.second}
			v.past[key] = h
			h.looks[(v.second-1)%minute] = repository.Counters{} // what came since counts
		}
		h.last = v.second
		h.looks[v.second%minute] = *p
		h.flows.look(v.second, p.Edges)
	}
	for key, h := range v.past {
		if h.last != v.second {
			delete(v.past, key)
		}
	}
}

// Server implements infer.Overview.
func (v *overview) Server() *infer.ServerView {
	s := v.s
	x := &infer.ServerView{
		Name: s.o.ID, Version: Version, StartedUs: v.began.UnixMicro(), NowUs: time.Now().UnixMicro(),
		Ready: s.ready(), Cores: runtime.NumCPU(), CPUSeconds: cpuSeconds(), Memory: resident(),
	}
	if p, ok := s.alloc.(interface{ InUse() int64 }); ok {
		x.Tensors = p.InUse()
	}
	if s.store != nil {
		x.Store = s.store.Stats()
	}
	x.GPUs = gpuViews(s.counted.Measured())
	return x
}

// cpuSeconds returns how long processors worked for this process.
func cpuSeconds() float64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

// resident returns the memory of this process, 0 where that is not known.
func resident() int64 {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	var fields [2]int64
	at, digits := 0, false
	for _, c := range b {
		switch {
		case c >= '0' && c <= '9':
			fields[at] = fields[at]*10 + int64(c-'0')
			digits = true
		case digits:
			if at++; at == len(fields) {
				return fields[1] * int64(os.Getpagesize())
			}
			digits = false
		}
	}
	return 0
}

// Models implements infer.Overview.
func (v *overview) Models() []infer.ModelView {
	pulses := map[served]repository.Counters{}
	for _, p := range v.s.repo.Counters() {
		pulses[served{p.Name, p.Version}] = p
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	list := []infer.ModelView{}
	for _, e := range v.s.repo.Index(false) {
		m := infer.ModelView{Name: e.Name, Version: e.Version, State: e.State, Reason: e.Reason, Rates: []float64{}}
		number, err := strconv.ParseInt(e.Version, 10, 64)
		key := served{e.Name, number}
		if p, ok := pulses[key]; err == nil && ok {
			m.Platform = v.s.repo.Platform(e.Name, e.Version)
			m.Ensemble = m.Platform == "ensemble"
			v.fill(&m, key, &p)
		}
		list = append(list, m)
	}
	return list
}

// fill adds the figures of a version; mu is held.
func (v *overview) fill(m *infer.ModelView, key served, p *repository.Counters) {
	m.Queue, m.Requests, m.Failures, m.Copied = p.Waiting, p.Requests, p.Failures, p.CopiedBytes
	h := v.past[key]
	if h == nil {
		return
	}
	if v.s.store != nil {
		m.P50Ns, m.P99Ns = v.s.store.Quantiles(m.Name)
	}
	oldest := max(h.first-1, v.second-minute+1)
	was, now := &h.looks[oldest%minute], &h.looks[v.second%minute]
	seconds := float64(v.second - oldest)
	requests := now.Requests - was.Requests
	m.Rate, m.Errors = float64(requests)/seconds, float64(now.Failures-was.Failures)/seconds
	if n := now.Executions - was.Executions; n > 0 {
		m.BatchRows = float64(now.Rows-was.Rows) / float64(n)
	}
	if requests > 0 {
		m.QueueNs, m.ComputeNs = int64((now.QueueNs-was.QueueNs)/requests), int64((now.ComputeNs-was.ComputeNs)/requests)
	}
	for i := oldest + 1; i <= v.second; i++ {
		a, b := &h.looks[(i-1)%minute], &h.looks[i%minute]
		m.Rates = append(m.Rates, float64(b.Requests+b.Failures-a.Requests-a.Failures))
	}
}

// Graph implements infer.Overview.
func (v *overview) Graph(model string, version int64) (*infer.GraphView, error) {
	g, err := v.s.repo.Graph(model, version)
	if err != nil {
		return nil, err
	}
	v.flow(g)
	list := v.Models()
	for i := range g.Nodes {
		n := &g.Nodes[i]
		for j := range list {
			if list[j].Name == n.Model && list[j].Version == strconv.FormatInt(n.Version, 10) {
				n.Live = &list[j]
			}
		}
	}
	return g, nil
}
