package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tutti-server/tutti/bench/proc"
	tutticlient "github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/internal/load"
	"github.com/tutti-server/tutti/internal/plot"
	"github.com/tutti-server/tutti/internal/simulate"
	"github.com/tutti-server/tutti/scheduler/sim"
)

const (
	liveRepository = "bench/repository/goodput3"
	liveLimit      = 120 * time.Millisecond
	liveLength     = 15 * time.Second
	liveWarmUp     = 3 * time.Second
	liveClients    = 1024
	// liveFull are clients whose requests fill the batches of three models and of a queue.
	liveFull = 64
	// liveLeast is the least goodput over the bound, liveApart how far it may be from the simulator's.
	liveLeast = 0.97
	liveApart = 0.1
	// slowestRefusal bounds the p99 of refusals.
	slowestRefusal = 5 * time.Millisecond
)

// liveSide is a server, and the model that requests are for.
type liveSide struct {
	name, model string
	goal        bool   // it has to reach the goals
	metrics     string // the address of its metrics, empty for others than ours
	*proc.Process
}

// refusals are the times to the error of the requests that failed: how many were refused on arrival and how many queues dropped later. p50 and p99 are
// percentiles of the former, from when the client sent the request; late is their p99 from when it was to be sent, and latest that of the others.
type refusals struct {
	arrived, dropped       int
	p50, p99, late, latest time.Duration
}

// refusalsOf divides the failures of a run into those on arrival and those later. The server counts the former; they are taken as the
// quickest, because a request that is dropped later has waited before.
func refusalsOf(of *load.Result, arrived int) (r refusals) {
	r.arrived = min(arrived, len(of.Failures))
	r.dropped = len(of.Failures) - r.arrived
	if r.arrived > 0 {
		sent := of.FailuresSent[:r.arrived]
		r.p50, r.p99 = load.Percentile(sent, 0.5), load.Percentile(sent, 0.99)
		r.late = load.Percentile(of.Failures[:r.arrived], 0.99)
	}
	if r.dropped > 0 {
		r.latest = load.Percentile(of.Failures[r.arrived:], 0.99)
	}
	return r
}

func (r *refusals) String() string {
	if r.arrived+r.dropped == 0 {
		return "-"
	}
	text := fmt.Sprintf("%d in %.1f, %.1f (%.1f) ms", r.arrived, inMillis(r.p50), inMillis(r.p99), inMillis(r.late))
	if r.dropped > 0 {
		text += fmt.Sprintf("; %d dropped within %.0f ms", r.dropped, inMillis(r.latest))
	}
	return text
}

// onArrival returns how many requests for the model the server has refused on arrival; 0 for another server, which refuses none there.
func (s *liveSide) onArrival() (int, error) {
	if s.metrics == "" {
		return 0, nil
	}
	n, err := sampleOf(context.Background(), s.metrics, "ensemble_refusals_total", `model="`+s.model+`"`, `reason="deadline_predicted"`)
	if errors.Is(err, errNoSample) { // it has refused none yet
		return 0, nil
	}
	return int(n), err
}

// liveOn sends requests to servers at random times, beside a simulation of the same arrivals. The models only sleep, so that it is the
// scheduling that is compared. All sides have the same models, clients and limit.
func (g *goodputBench) liveOn(shared bool) (err error) {
	sides, stop, err := g.liveSides(shared)
	defer func() { err = errors.Join(err, stop()) }()
	if err != nil {
		return err
	}
	statistics := tutticlient.NewHTTP("http://"+sides[0].HTTP, nil)
	defer func() { err = errors.Join(err, statistics.Close()) }()
	graph, err := g.liveGraph(sides[0].HTTP, statistics, shared)
	if err != nil {
		return err
	}
	fmt.Fprint(g.table, "\nlearned: ")
	for i := range graph.Nodes {
		n := &graph.Nodes[i]
		fmt.Fprintf(g.table, "%s %v and %v a row; ", n.Name, n.Fixed, n.PerRow)
	}
	fmt.Fprintf(g.table, "\nlive, %s: requests in time of a limit of %v, over the bound; %v each, %.0f requests/s is the capacity\n", devices(shared), liveLimit, liveLength, graph.Capacity())
	fmt.Fprint(g.table, "arrivals\tload\tcapacity\tbound\tsimulated\twasted")
	for _, s := range sides {
		fmt.Fprintf(g.table, "\t%s\trefusals: p50, p99 from sending (from the planned time)", s.name)
	}
	fmt.Fprintln(g.table)
	p := plot.Plot{
		Title: fmt.Sprintf("In time within %v", liveLimit), X: "load: arrivals over what full batches execute", Y: "in time, % of the arrivals",
		XLabel: plot.Number, YLabel: plot.Number, Series: []plot.Series{{Name: "bound", Dashed: true}},
	}
	for _, s := range sides {
		p.Series = append(p.Series, plot.Series{Name: s.name})
	}
	for i, kind := range goodputKinds()[:2] {
		for _, at := range []float64{0.5, 0.8, 1, 1.2, 1.5} {
			parts, err := g.liveLine(&graph, kind, at, sides, statistics)
			if err != nil {
				return err
			}
			if i > 0 {
				continue
			}
			for k, part := range parts {
				p.Series[k].At = append(p.Series[k].At, [2]float64{at, 100 * part})
			}
		}
	}
	return errors.Join(g.table.Flush(), g.draw(&p, shared))
}

// draw writes the plot to the file of -svg, if there is one.
func (g *goodputBench) draw(p *plot.Plot, shared bool) error {
	if g.svg == "" || shared {
		return nil
	}
	var b bytes.Buffer
	return errors.Join(p.Write(&b), os.WriteFile(g.svg, b.Bytes(), 0o600))
}

func devices(shared bool) string {
	if shared {
		return "a shared device"
	}
	return "own devices"
}

// liveGraph describes the models of liveRepository, with the times that our server has measured at little load, with full batches, and at a
// load as those of the lines. They say how many requests are sent; the bound of a line follows from the times during the line.
func (g *goodputBench) liveGraph(addr string, statistics tutticlient.Client, shared bool) (graph sim.Graph, err error) {
	const undated = "goodput3_undated"
	if _, err = sendAt(addr, undated, vectorOf16(), sim.Poisson(50, liveWarmUp, 1)); err != nil {
		return graph, err
	}
	request := vectorOf16()
	request.Model = undated
	if _, err = closedLoop(addr, []load.Request{request}, liveFull); err != nil {
		return graph, err
	}
	args := []string{undated, "--slo-ms", strconv.FormatInt(liveLimit.Milliseconds(), 10), "--load", "1", "--seconds", "1", "--policy", "deadline"}
	if shared {
		args = append(args, "--shared-device")
	}
	learned, err := g.simulate(addr, args...)
	if err != nil {
		return graph, err
	}
	for i := range learned.Steps {
		s := &learned.Steps[i]
		n := sim.Node{Name: s.Name, Fixed: ofMillis(s.Fixed), PerRow: ofMillis(s.PerRow), MaxBatch: s.MaxBatch, Instances: s.Instances}
		for _, name := range s.After {
			n.After = append(n.After, slices.IndexFunc(graph.Nodes, func(n sim.Node) bool { return n.Name == name }))
		}
		if shared {
			n.Device = 1
		}
		graph.Nodes = append(graph.Nodes, n)
	}
	if err = graph.Check(); err != nil {
		return graph, err
	}
	_, batches, err := timedLine(addr, statistics, "goodput3", &graph, sim.Poisson(1.2*graph.Capacity(), liveWarmUp, 1))
	if err != nil {
		return graph, err
	}
	return batches.apply(&graph)
}

// timedLine is sendAt, and returns the batches that the models of the graph have executed for the requests.
func timedLine(addr string, statistics tutticlient.Client, model string, graph *sim.Graph, times []time.Duration) (r load.Result, t batchTimes, err error) {
	group, err := warmAt(addr, model, vectorOf16(), times)
	if err != nil {
		return r, nil, err
	}
	defer func() { err = errors.Join(err, group.Close()) }()
	before, err := timesOf(statistics, graph)
	if err != nil {
		return r, nil, err
	}
	if r, err = load.Run(group.Clients, load.Plan{Times: times}); err != nil {
		return r, nil, err
	}
	after, err := timesOf(statistics, graph)
	if err != nil {
		return r, nil, err
	}
	return r, after.since(before), nil
}

// simulate runs tutti simulate of an ensemble of the server at addr.
func (g *goodputBench) simulate(addr string, args ...string) (r simulate.Data, err error) {
	response, err := output(nil, g.tutti, append(append([]string{"simulate"}, args...), "--url", addr, "-o", "json")...)
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal([]byte(response), &r)
}

// closedLoop has n clients send requests for some time, each one the next after the response.
func closedLoop(addr string, requests []load.Request, n int) (r load.Result, err error) {
	group, err := load.Dial(load.Target{HTTP: addr}, load.Binary, requests, n)
	if err != nil {
		return r, err
	}
	r, err = load.Run(group.Clients, load.Plan{Duration: liveWarmUp})
	return r, errors.Join(err, group.Close())
}

// liveSides starts the servers. Triton is left out where it cannot be had, and of a shared device, which it does not have.
func (g *goodputBench) liveSides(shared bool) (sides []liveSide, stop func() error, err error) {
	var running []*proc.Process
	stop = func() (err error) {
		for _, p := range running {
			err = errors.Join(err, p.Stop())
		}
		return err
	}
	ports, err := freePorts()
	if err != nil {
		return nil, stop, err
	}
	metrics, err := proc.FreePort()
	if err != nil {
		return nil, stop, err
	}
	args := append(tuttiArgs(ports, liveRepository), "--allow-metrics=true", "--metrics-address=127.0.0.1", "--metrics-port="+metrics)
	if shared {
		args = append(args, "--max-device-executions=1")
	}
	ours, err := proc.Start(context.Background(), &proc.Settings{
		Command: append([]string{g.tutti}, args...), HTTP: "127.0.0.1:" + ports[0], GRPC: "127.0.0.1:" + ports[1], Env: interpreter(),
	})
	if err != nil {
		return nil, stop, err
	}
	running = append(running, ours)
	seen := "http://127.0.0.1:" + metrics + "/metrics"
	sides = []liveSide{{"tutti", "goodput3", true, seen, ours}, {"tutti without deadlines", "goodput3_undated", false, seen, ours}}
	if shared {
		return sides, stop, nil
	}
	m := &matrix{work: os.TempDir()}
	peer, err := m.peer("triton")
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == cannotFetch {
		logf("without Triton: %s", bytes.TrimSpace(exit.Stderr))
		return sides, stop, nil
	}
	if err != nil {
		return nil, stop, err
	}
	m.instances, m.threads = 1, 1
	triton, err := peer.start(context.Background(), &scenario{name: "goodput3"})
	if err != nil {
		return nil, stop, err
	}
	running = append(running, triton)
	return append(sides, liveSide{m.report.Versions[0], "goodput3", false, "", triton}), stop, nil
}

// liveLine prints what each side does with the same arrivals. It returns the bound and what part of the requests is in time at each side.
//
// The first side is the server with deadlines. The bound and the simulation follow from the times of its models' batches in this line: they depend on
// what else uses the processors, by several percent from one minute to the next.
func (g *goodputBench) liveLine(graph *sim.Graph, kind goodputCase, at float64, sides []liveSide, statistics tutticlient.Client) (parts []float64, err error) {
	arrivals := kind.of(at*graph.Capacity(), liveLength, 1)
	var o sim.Outcome
	var simulated, wasted float64
	for i := range sides {
		s := &sides[i]
		before, err := s.onArrival()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		var r load.Result
		if i == 0 {
			var batches batchTimes
			if r, batches, err = timedLine(s.HTTP, statistics, s.model, graph, arrivals); err != nil {
				return nil, fmt.Errorf("%s: %w", s.name, err)
			}
			timed, err := batches.apply(graph)
			if err != nil {
				return nil, err
			}
			o = sim.Run(&sim.Scenario{Graph: timed, Arrivals: arrivals, Limit: liveLimit, Policy: sim.Deadline})
			simulated = o.Goodput() / o.Bound
			wasted = batches.wasted(inTime(&r, liveLimit))
			parts = append(parts, o.Bound)
			fmt.Fprintf(g.table, "%s\t%.1f\t%.0f\t%.1f %%\t%.3f\t%.1f %%", kind.arrivals, at, timed.Capacity(), 100*o.Bound, simulated, 100*wasted)
		} else if r, err = sendAt(s.HTTP, s.model, vectorOf16(), arrivals); err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		after, err := s.onArrival()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		part := inTime(&r, liveLimit) / float64(len(arrivals)) / o.Bound
		parts = append(parts, part*o.Bound)
		refused := refusalsOf(&r, after-before)
		verdict := ""
		if s.goal && (at >= 1 && part < liveLeast || part < simulated-liveApart || refused.p99 > slowestRefusal || wasted > mostWaste) {
			g.missed, verdict = true, " MISSED"
		}
		fmt.Fprintf(g.table, "\t%.3f%s\t%s", part, verdict, &refused)
	}
	fmt.Fprintln(g.table)
	return parts, nil
}

func inMillis(d time.Duration) float64 { return d.Seconds() * 1e3 }

func ofMillis(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }

// inTime returns how many responses arrived within a limit.
func inTime(r *load.Result, limit time.Duration) float64 {
	n, _ := slices.BinarySearch(r.Latencies, limit+1)
	return float64(n)
}

func vectorOf16() load.Request {
	return load.Request{Inputs: []load.Tensor{load.Floats("INPUT0", []int64{1, 16}, make([]float32, 16))}}
}

// sendAt sends requests for a model at the given times, after some that warm it up.
func sendAt(addr, model string, request load.Request, times []time.Duration) (r load.Result, err error) {
	g, err := warmAt(addr, model, request, times)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	return load.Run(g.Clients, load.Plan{Times: times})
}

// warmAt connects clients for requests at the given times, and sends some at half of their rate. The caller must close the group.
func warmAt(addr, model string, request load.Request, times []time.Duration) (*load.Group, error) {
	request.Model = model
	g, err := load.Dial(load.Target{HTTP: addr}, load.Binary, []load.Request{request}, liveClients)
	if err != nil {
		return nil, err
	}
	rate := float64(len(times)) / times[len(times)-1].Seconds() / 2
	if _, err = load.Run(g.Clients, load.Plan{Rate: rate, Duration: liveWarmUp}); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

// textWithin is the limit of the text example.
const textWithin = 100 * time.Millisecond

// liveText compares the text example with `tutti simulate` of it: the times are learned from the server, and the arrivals are the same.
func (g *goodputBench) liveText() (err error) {
	work, err := os.MkdirTemp("", "bench-goodput")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	s, err := newScenario("text")
	if err != nil {
		return err
	}
	if err = os.CopyFS(work, os.DirFS(textRepository)); err != nil {
		return err
	}
	config := filepath.Join(work, s.ensemble, "config.pbtxt")
	text, err := os.ReadFile(config)
	if err != nil {
		return err
	}
	limit := fmt.Sprintf("\nparameters { key: \"ensemble.slo_ms\" value { string_value: \"%d\" } }\n", textWithin.Milliseconds())
	if err = os.WriteFile(config, append(text, limit...), 0o600); err != nil {
		return err
	}
	p, err := g.serve(work)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Stop()) }()
	most, err := textCapacity(p, s)
	if err != nil {
		return err
	}
	fmt.Fprintf(g.table, "\nlive, the text example: requests in time of a limit of %v; 32 clients have %.0f requests/s\n", textWithin, most)
	fmt.Fprintln(g.table, "requests/s\tlive\tsimulated\tp50, p99 of a refusal")
	for _, at := range []float64{0.6, 0.8, 1, 1.2, 1.5} {
		if err = g.textLine(p, s, at*most, work); err != nil {
			return err
		}
	}
	return g.table.Flush()
}

// textCapacity returns the throughput of 32 clients, after runs of fewer.
func textCapacity(p *process, s *scenario) (most float64, err error) {
	for _, n := range []int{1, 8, 32} {
		r, err := closedLoop(p.HTTP, s.requests, n)
		if err != nil {
			return 0, err
		}
		most = r.Throughput
	}
	return most, nil
}

func (g *goodputBench) textLine(p *process, s *scenario, rate float64, work string) error {
	times := []time.Duration(sim.Poisson(rate, liveLength, 1))
	group, err := load.Dial(load.Target{HTTP: p.HTTP}, load.Binary, s.requests, liveClients)
	if err != nil {
		return err
	}
	r, err := load.Run(group.Clients, load.Plan{Times: times})
	if err = errors.Join(err, group.Close()); err != nil {
		return err
	}
	var lines strings.Builder
	for _, t := range times {
		fmt.Fprintln(&lines, strconv.FormatFloat(t.Seconds(), 'f', 6, 64))
	}
	file := filepath.Join(work, "times.txt")
	if err = os.WriteFile(file, []byte(lines.String()), 0o600); err != nil {
		return err
	}
	simulated, err := g.simulate(p.HTTP, s.ensemble, "--slo-ms", strconv.FormatInt(textWithin.Milliseconds(), 10), "--arrivals", file, "--policy", "deadline")
	if err != nil {
		return err
	}
	part, expected := inTime(&r, textWithin)/float64(len(times)), simulated.Loads[0].Policies[0].Goodput
	verdict := ""
	if part < expected-liveApart || part > expected+liveApart {
		g.missed, verdict = true, " MISSED"
	}
	fmt.Fprintf(g.table, "%.0f\t%.3f%s\t%.3f\t%.1f, %.1f ms\n", rate, part, verdict, expected, inMillis(load.Percentile(r.Failures, 0.5)), inMillis(load.Percentile(r.Failures, 0.99)))
	return nil
}
