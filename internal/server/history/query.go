package history

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/inspect"
)

// Bounds of a query.
const (
	defaultSteps, maxSteps = 240, 1000
	defaultTop, maxTop     = 5, 20
	maxRange               = 31 * 24 * time.Hour
)

// History implements inspect.History.
func (s *Store) History(ctx context.Context, q *inspect.HistoryQuery) (*inspect.HistoryView, error) {
	_, wall := s.clock()
	g, err := newGrid(q, wall.UnixMicro())
	if err != nil {
		return nil, err
	}
	top := cmp.Or(q.Top, defaultTop)
	if top < 0 || top > maxTop {
		return nil, status.Errorf(status.InvalidArg, "the number of models is %d, expected 1 to %d", top, maxTop)
	}
	wanted, more := []string{q.Model}, 0
	if q.Model == "" {
		var sums [2]map[string]float64 // of models, and of ensembles
		sums[0], sums[1] = map[string]float64{}, map[string]float64{}
		if _, err := s.visit(ctx, g, func(f *frame, named func(uint32) *name) {
			for i := range f.points {
				p := &f.points[i]
				if m := named(p.series); m.ensemble {
					sums[1][m.name] += p.sent()
				} else {
					sums[0][m.name] += p.sent()
				}
			}
		}); err != nil {
			return nil, err
		}
		if wanted, more = busiest(sums[1], top); len(wanted) == 0 {
			wanted, more = busiest(sums[0], top)
		}
	}
	x := newExtract(g, wanted, q.Model == "")
	oldest, err := s.visit(ctx, g, x.add)
	if err != nil {
		return nil, err
	}
	v := x.view()
	v.NowUs, v.OldestUs, v.Stored, v.More = wall.UnixMicro(), oldest/1000, s.disk != nil, more
	return v, nil
}

// visit visits the frames of a grid, by the clock of the wall: those in memory, and those in the file that are older. It returns the start of
// the oldest frame of all, 0 if there is none.
func (s *Store) visit(ctx context.Context, g *grid, f func(*frame, func(uint32) *name)) (oldest int64, err error) {
	oldest, until := s.recall(g, f)
	err = s.disk.read(ctx, g.from, min(g.to(), until), func(x *frame, named func(uint32) *name) {
		if x.end > until { // memory has the rest
			*x = x.before(until)
		}
		f(x, named)
	})
	if first := s.disk.oldest(); first != 0 && (first < oldest || oldest == 0) {
		oldest = first
	}
	return oldest, err
}

// recall visits the frames in memory. It returns the start of the oldest one, 0 for none, and the time until which the file is needed.
func (s *Store) recall(g *grid, visit func(*frame, func(uint32) *name)) (oldest, until int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	mono, wall := s.clock()
	shift := wall.UnixNano() - mono
	for i := range s.frames {
		f := s.frames[i]
		f.start, f.end = f.start+shift, f.end+shift
		if f.end > g.from && f.start < g.to() {
			visit(&f, func(at uint32) *name { return &s.names.list[at] })
		}
	}
	if len(s.frames) == 0 {
		return 0, wall.UnixNano()
	}
	return s.frames[0].start + shift, s.frames[0].start + shift
}

// busiest returns the models with the most requests, sorted by name, and how many others had some.
func busiest(sums map[string]float64, top int) (list []string, more int) {
	for name, n := range sums {
		if n > 0 {
			list = append(list, name)
		}
	}
	slices.SortFunc(list, func(a, b string) int { return cmp.Or(cmp.Compare(sums[b], sums[a]), cmp.Compare(a, b)) })
	more = max(0, len(list)-top)
	list = list[:len(list)-more]
	slices.Sort(list)
	return list, more
}

// grid are the steps of a response. Times are ns since 1970.
type grid struct {
	from, step int64
	n          int
}

func (g *grid) to() int64 { return g.from + g.step*int64(g.n) }

// newGrid returns the steps of a query at the time now in microseconds. They begin at multiples of their length, so that a page that asks
// again gets the same steps.
func newGrid(q *inspect.HistoryQuery, now int64) (*grid, error) {
	to := cmp.Or(q.ToUs, now)
	if q.Seconds < 0 || q.Seconds > int(maxRange/time.Second) {
		return nil, status.Errorf(status.InvalidArg, "the range is %d seconds, expected 1 to %d", q.Seconds, int(maxRange/time.Second))
	}
	from := cmp.Or(q.FromUs, to-cmp.Or(int64(q.Seconds)*1e6, kept.Microseconds()))
	n := cmp.Or(q.Steps, defaultSteps)
	switch {
	case from < 0 || to > 1<<52 || from >= to:
		return nil, status.Errorf(status.InvalidArg, "the history from %d to %d is empty, expected microseconds since 1970, the earlier ones first", from, to)
	case to-from > maxRange.Microseconds():
		return nil, status.Errorf(status.InvalidArg, "the history from %d to %d is longer than %v, expected a shorter range", from, to, maxRange)
	case n < 1 || n > maxSteps:
		return nil, status.Errorf(status.InvalidArg, "the number of steps is %d, expected 1 to %d", n, maxSteps)
	}
	const unit = int64(step / time.Microsecond)
	length := max((to-from+int64(n)-1)/int64(n), 1)
	length = (length + unit - 1) / unit * unit
	first := from / length * length
	count := min(int((to-first+length-1)/length), n)
	first = (to+length-1)/length*length - int64(count)*length
	return &grid{from: first * 1000, step: length * 1000, n: count}, nil
}

// extract sums frames by the steps of a grid.
type extract struct {
	grid   *grid
	server []serverSum
	gpus   map[string][]gpuSum
	total  [2][]modelSum // of models that are no ensembles, and of ensembles; nil if there is no total
	models map[string]*[]modelSum
	kinds  map[string]bool // by model: it is an ensemble
}

type serverSum struct{ ns, cores, memory, tensors float64 }

type gpuSum struct{ busyNs, busy, memoryNs, memory float64 }

// modelSum are the figures of a model in a step. weight are the requests whose p50 are summed.
type modelSum struct{ requests, failures, rows, executions, waiting, weight, p50, p99, queueNs, computeNs float64 }

func newExtract(g *grid, models []string, total bool) *extract {
	x := &extract{grid: g, server: make([]serverSum, g.n), gpus: map[string][]gpuSum{}, models: map[string]*[]modelSum{}, kinds: map[string]bool{}}
	for _, m := range models {
		list := make([]modelSum, g.n)
		x.models[m] = &list
	}
	if total {
		x.total = [2][]modelSum{make([]modelSum, g.n), make([]modelSum, g.n)}
	}
	return x
}

// add adds a frame to the steps that it overlaps.
func (x *extract) add(f *frame, named func(uint32) *name) {
	g := x.grid
	took := f.end - f.start
	if took <= 0 {
		return
	}
	for i := max(0, (f.start-g.from)/g.step); i < int64(g.n) && g.from+i*g.step < f.end; i++ {
		from, to := max(f.start, g.from+i*g.step), min(f.end, g.from+(i+1)*g.step)
		if to > from {
			x.addTo(int(i), f, float64(to-from), float64(to-from)/float64(took), named)
		}
	}
}

// addTo adds a share of a frame to a step.
func (x *extract) addTo(i int, f *frame, ns, share float64, named func(uint32) *name) {
	s := &x.server[i]
	s.ns, s.cores, s.memory, s.tensors = s.ns+ns, s.cores+ns*f.server.Cores, s.memory+ns*f.server.Memory, s.tensors+ns*f.server.Tensors
	for _, g := range f.server.GPUs {
		if x.gpus[g.UUID] == nil {
			x.gpus[g.UUID] = make([]gpuSum, x.grid.n)
		}
		sum := &x.gpus[g.UUID][i]
		if g.Utilization != nil {
			sum.busyNs, sum.busy = sum.busyNs+ns, sum.busy+ns**g.Utilization
		}
		if g.Memory != nil {
			sum.memoryNs, sum.memory = sum.memoryNs+ns, sum.memory+ns**g.Memory
		}
	}
	for j := range f.points {
		p := &f.points[j]
		m := named(p.series)
		if list := x.models[m.name]; list != nil {
			(*list)[i].add(p, share)
			x.kinds[m.name] = m.ensemble
		}
		if x.total[0] != nil {
			kind := 0
			if m.ensemble {
				kind = 1
			}
			x.total[kind][i].add(p, share)
		}
	}
}

func (s *modelSum) add(p *point, share float64) {
	s.requests += share * float64(p.requests)
	s.failures += share * float64(p.failures)
	s.rows += share * float64(p.rows)
	s.executions += share * float64(p.executions)
	s.queueNs += share * float64(p.queueNs)
	s.computeNs += share * float64(p.computeNs)
	s.waiting, s.p99 = max(s.waiting, float64(p.waiting)), max(s.p99, float64(p.p99))
	if n := share * (float64(p.requests) + float64(p.failures)); p.p50 > 0 && n > 0 {
		s.weight, s.p50 = s.weight+n, s.p50+n*float64(p.p50)
	}
}

// view returns the response.
func (x *extract) view() *inspect.HistoryView {
	g := x.grid
	v := &inspect.HistoryView{FromUs: g.from / 1000, StepUs: g.step / 1000, Steps: g.n, GPUs: []inspect.GPUSeries{}, Models: []inspect.ModelSeries{}}
	v.Cores = series(x.server, func(s serverSum) float64 { return s.cores / s.ns })
	v.Memory = series(x.server, func(s serverSum) float64 { return s.memory / s.ns })
	v.Tensors = series(x.server, func(s serverSum) float64 { return s.tensors / s.ns })
	for uuid, sums := range x.gpus {
		v.GPUs = append(v.GPUs, inspect.GPUSeries{
			UUID: uuid, Utilization: series(sums, func(s gpuSum) float64 { return s.busy / s.busyNs }),
			Memory: series(sums, func(s gpuSum) float64 { return s.memory / s.memoryNs }),
		})
	}
	slices.SortFunc(v.GPUs, func(a, b inspect.GPUSeries) int { return cmp.Compare(a.UUID, b.UUID) })
	for name, sums := range x.models {
		v.Models = append(v.Models, x.model(name, x.kinds[name], *sums))
	}
	slices.SortFunc(v.Models, func(a, b inspect.ModelSeries) int { return cmp.Compare(a.Name, b.Name) })
	if x.total[0] != nil {
		kind := 0
		if slices.ContainsFunc(x.total[1], func(s modelSum) bool { return s != modelSum{} }) {
			kind = 1
		}
		total := x.model("", kind == 1, x.total[kind])
		v.Total = &total
	}
	return v
}

// model returns the figures of a model. Rates are of the time in which the server ran.
func (x *extract) model(name string, ensemble bool, sums []modelSum) inspect.ModelSeries {
	m := inspect.ModelSeries{Name: name, Ensemble: ensemble}
	ran := func(i int) float64 { // in a step; servers that replace one another may both have run
		return min(x.server[i].ns, float64(x.grid.step)) / 1e9
	}
	at := func(f func(i int, s *modelSum) float64) inspect.Series {
		list := make(inspect.Series, len(sums))
		for i := range sums {
			if list[i] = math.NaN(); x.server[i].ns > 0 {
				list[i] = f(i, &sums[i])
			}
		}
		return list
	}
	m.Rate = at(func(i int, s *modelSum) float64 { return s.requests / ran(i) })
	m.Errors = at(func(i int, s *modelSum) float64 { return s.failures / ran(i) })
	m.Queue = at(func(_ int, s *modelSum) float64 { return s.waiting })
	m.BatchRows = at(func(_ int, s *modelSum) float64 { return s.rows / s.executions })
	m.QueueNs = at(func(_ int, s *modelSum) float64 { return s.queueNs / s.requests })
	m.ComputeNs = at(func(_ int, s *modelSum) float64 { return s.computeNs / s.requests })
	m.P50Ns = at(func(_ int, s *modelSum) float64 { return s.p50 / s.weight })
	m.P99Ns = at(func(_ int, s *modelSum) float64 {
		if s.p99 == 0 {
			return math.NaN()
		}
		return s.p99
	})
	return m
}

// series returns the values of sums; 0/0 is NaN, which has no value.
func series[T any](sums []T, f func(T) float64) inspect.Series {
	list := make(inspect.Series, len(sums))
	for i := range sums {
		list[i] = f(sums[i])
	}
	return list
}
