package tune

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/internal/lab"
)

// processTime returns the processor time of this process.
func processTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// point is one thing to measure: a batch of a model that executes in one way.
type point struct {
	model     int
	x         Execution
	name      string // of the model's variant
	batch     Batch
	call      *lab.Call
	wall, cpu []time.Duration
}

const (
	// measureTime bounds the time of the rounds of a measurement.
	measureTime = 40 * time.Second
	// fewestRounds and mostRounds bound the rounds: each measures every point once, so that a disturbance of the machine
	// touches all points and not only those of one model.
	fewestRounds, mostRounds = 3, 9
	// longestBatch is the time of a batch beyond which no larger one is measured.
	longestBatch = 500 * time.Millisecond
	// sampled is how many samples of different sizes are measured of each model.
	sampled = 4
)

// measure measures the batches of each model and fits its costs. inputs are those of each sample at each node.
func (l *bench) measure(ctx context.Context, n *Network, inputs [][][]client.Tensor, longest time.Duration, progress func(share float64)) error {
	var points []*point
	defer func() {
		for _, p := range points {
			p.call.Release()
		}
	}()
	round := time.Duration(0)
	for m := range n.Models {
		for x := range n.Models[m].Costs {
			list, took, err := l.points(ctx, n, m, x, inputs, min(longest, l.s.length(longestBatch)))
			points, round = append(points, list...), round+took
			if err != nil {
				return err
			}
		}
	}
	slices.SortStableFunc(points, func(a, b *point) int {
		return cmp.Or(cmp.Compare(a.model, b.model), cmp.Compare(a.x.Version.Number, b.x.Version.Number), cmp.Compare(a.x.Threads, b.x.Threads))
	})
	rounds := int(min(max(l.s.length(measureTime)/max(round, 1), fewestRounds), mostRounds))
	for i := range rounds {
		for _, p := range points {
			if err := l.Once(ctx, p.call); err != nil { // its weights are in the caches then, as under load
				return err
			}
			wall, cpu, err := l.timed(ctx, p.call)
			if err != nil {
				return err
			}
			p.wall, p.cpu = append(p.wall, wall), append(p.cpu, cpu)
		}
		progress(float64(i+1) / float64(rounds))
	}
	for m := range n.Models {
		for x := range n.Models[m].Costs {
			n.Models[m].Costs[x] = fitPoints(points, &n.Models[m], m, x)
		}
		n.Models[m].bounded(points, m)
	}
	return nil
}

// fitPoints fits the cost of a model that executes in one way.
func fitPoints(points []*point, m *Model, model int, x Execution) Cost {
	var list []Observation
	for _, p := range points {
		if p.model == model && p.x == x {
			list = append(list, Observation{Batch: p.batch, Wall: quartile(p.wall), CPU: quartile(p.cpu)})
		}
	}
	c := Fit(list)
	c.Beyond, c.BeyondBatches = beyond(&c, list, m.Current.MaxBatch)
	if x.Threads > 0 {
		c.Width = min(c.Width, float64(x.Threads)) // the rest is the server's
	}
	if m.Config.GetBackend() == "python" {
		c.Width = max(c.Width, 1) // its time is that of another process
	}
	return c
}

// points returns what to measure of a model: some of the samples, each in batches of 1, 2, 4 and so on copies, until a
// batch takes longest. It executes each batch twice, so that memory is there when it is measured.
func (l *bench) points(ctx context.Context, n *Network, model int, x Execution, inputs [][][]client.Tensor, longest time.Duration) (list []*point, took time.Duration, err error) {
	m := &n.Models[model]
	node := slices.IndexFunc(n.Nodes, func(x Node) bool { return x.Model == model })
	name := m.Name
	if x.Threads > 0 {
		name = variant(m.Name, x)
	}
	for _, sample := range spread(n, node) {
		size := n.Samples[sample].Sizes[node]
		for copies := int32(1); copies == 1 || copies*size.Rows <= m.Largest; copies *= 2 {
			p := &point{model: model, x: x, name: name}
			for range copies {
				p.batch.add(&size)
			}
			if p.call, err = l.NewCall(name, 0, inputs[sample][node], int(copies)); err != nil {
				return list, took, err
			}
			list = append(list, p)
			if err := l.Once(ctx, p.call); err != nil {
				return list, took, err
			}
			wall, _, err := l.timed(ctx, p.call)
			if took += wall; err != nil || wall > longest {
				if err != nil {
					return list, took, err
				}
				break
			}
		}
	}
	return list, took, nil
}

// spread returns samples of different sizes at a node, from the smallest to the largest.
func spread(n *Network, node int) (list []int) {
	order := make([]int, len(n.Samples))
	for i := range order {
		order[i] = i
	}
	elements := func(i int) int64 { return n.Samples[i].Sizes[node].Elements }
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(elements(a), elements(b)) })
	for k := range sampled {
		i := order[k*(len(order)-1)/(sampled-1)]
		if len(list) == 0 || elements(i) != elements(list[len(list)-1]) {
			list = append(list, i)
		}
	}
	return list
}

// interference measures how much longer executions of the smallest and of the largest sample take while others use all
// other cores, beyond the sharing of cores.
func (l *bench) interference(ctx context.Context, n *Network, cores int, inputs [][][]client.Tensor) error {
	for m := range n.Models {
		for x, c := range n.Models[m].Costs {
			if x.Threads == 0 || cores < 2 {
				continue
			}
			node := slices.IndexFunc(n.Nodes, func(x Node) bool { return x.Model == m })
			list := spread(n, node)
			together := concurrent(cores, x.Threads)
			shared := max(1, c.Width*float64(together)/float64(cores))
			for i, sample := range []int{list[0], list[len(list)-1]} {
				call, err := l.NewCall(variant(n.Models[m].Name, x), 0, inputs[sample][node], 1)
				if err != nil {
					return err
				}
				slower, err := l.slowdown(ctx, call, together)
				call.Release()
				if err != nil {
					return err
				}
				var b Batch
				b.add(&n.Samples[sample].Sizes[node])
				c.Interference[i] = Interference{Wall: c.Wall(&b), Part: max(0, slower/shared-1)}
			}
			n.Models[m].Costs[x] = c
		}
	}
	return nil
}

// concurrent is how many instances with so many threads use all cores, at least two.
func concurrent(cores, threads int) int { return max(2, cores/threads) }

// slowdown returns how many times as long a request takes while others like it execute. Rounds with and without them
// alternate.
func (l *bench) slowdown(ctx context.Context, c *lab.Call, together int) (float64, error) {
	const rounds = 5
	length := l.s.length(150 * time.Millisecond)
	var ratios []float64
	for range rounds {
		alone, err := l.paced(ctx, c, 1, length)
		if err != nil {
			return 0, err
		}
		beside, err := l.paced(ctx, c, together, length)
		if err != nil {
			return 0, err
		}
		ratios = append(ratios, float64(beside)/float64(alone))
	}
	return quartile(ratios), nil
}

// paced returns the mean time of a request with so many goroutines that send it.
func (l *bench) paced(ctx context.Context, c *lab.Call, goroutines int, length time.Duration) (time.Duration, error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	var first error
	n := 0
	began := time.Now()
	for range goroutines {
		wg.Go(func() {
			for time.Since(began) < length {
				err := l.Once(ctx, c)
				mu.Lock()
				n++
				first = cmp.Or(first, err)
				mu.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	return time.Since(began) * time.Duration(goroutines) / time.Duration(max(n, 1)), first
}
