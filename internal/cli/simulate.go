package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tutti-server/tutti/internal/simulate"
	"github.com/tutti-server/tutti/scheduler/sim"
)

func simulateCommand() command {
	return command{
		name: "simulate", usage: "ENSEMBLE [--url URL] | --graph FILE [--slo-ms N] [--load L,... | --rate R,...] [--arrivals KIND|FILE] [--svg FILE]",
		summary: "Predict what part of the requests is in time at and beyond capacity",
		notes: `With an ENSEMBLE, or a model, the graph is that of a running server, with the times of batches from its statistics: send it requests first. With --graph a file describes it.
Each policy serves the same arrivals in virtual time: ` + policyList() + `.
The bound is what no policy can exceed. Load 1 is the rate that the graph executes with full batches.
--arrivals is poisson, gamma:CV (bursts; CV is the coefficient of variation of the gaps), twitter (the shape of a public trace), or a file: a time on each line (seconds, or RFC 3339), a trace file of --trace-config triton,file=FILE, or captures of tutti capture. rates:FILE has numbers of requests per second. Recorded arrivals keep their rate, unless --load or --rate is given.`,
		examples: []string{
			"tutti simulate text --slo-ms 100",
			"tutti simulate text --slo-ms 100 --arrivals gamma:4 --load 0.8,1,1.2 --svg text.svg",
			"tutti simulate --graph graph.yaml --slo-ms 120 --arrivals twitter --noise 0.2 --policy today,deadline",
			"tutti simulate text --slo-ms 100 --arrivals trace.json -o json",
		},
		run: (*program).simulate, complete: completeModels,
	}
}

// policyList returns the policies with what they do, as a sentence has them.
func policyList() string {
	var list []string
	for _, p := range sim.Policies {
		list = append(list, fmt.Sprintf("%s (%s)", p.Name, p.Doc))
	}
	return strings.Join(list, ", ")
}

// simulateCall is the arguments of the command simulate.
type simulateCall struct {
	connect          connection
	url              *string
	graph            string
	slo, noise       float64
	seconds          float64
	loads, rates     numbers
	arrivals, policy string
	seed             uint64
	shared           bool
	svg              string
	out              *output
}

func (a *simulateCall) flags(fs *flag.FlagSet) {
	a.connect.flags(fs)
	a.url = urlFlag(fs, "http://, https://, grpc:// or grpcs://")
	fs.StringVar(&a.graph, "graph", "", "`file` that describes the graph, in YAML or JSON; in place of ENSEMBLE")
	fs.Float64Var(&a.slo, "slo-ms", 0, "`milliseconds` after its arrival in which a request must be done; by default slo_ms of the graph, or 2.5 times as long as full batches take")
	fs.Var(&a.loads, "load", "rates to simulate, in parts of the capacity, `numbers` separated by commas (default 0.5,0.8,1,1.2,1.5)")
	fs.Var(&a.rates, "rate", "rates to simulate, in requests per second, `numbers` separated by commas; in place of --load")
	fs.StringVar(&a.arrivals, "arrivals", "poisson", "`kind` or file of arrivals: "+simulate.Kinds)
	fs.Float64Var(&a.noise, "noise", 0, "coefficient of `variation` of the times of batches; for example 0.2")
	fs.Float64Var(&a.seconds, "seconds", 0, "`length` of generated arrivals; by default so long that 20,000 requests arrive, at most 60 s")
	fs.Uint64Var(&a.seed, "seed", 1, "`seed` of arrivals and noise: equal seeds give equal results")
	fs.StringVar(&a.policy, "policy", "", "`policies` to simulate, separated by commas; by default all")
	fs.BoolVar(&a.shared, "shared-device", false, "execute the batches of all steps on one device, one at a time")
	fs.StringVar(&a.svg, "svg", "", "`file` for a plot of the requests in time over the load")
	a.out = outputFlag(fs, formatTable, formatJSON, formatYAML)
}

// numbers is a flag with numbers above 0, separated by commas.
type numbers []float64

func (n *numbers) String() string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint([]float64(*n)), " ", ","), "[]")
}

// Set reads the numbers.
func (n *numbers) Set(text string) error {
	*n = nil
	for part := range strings.SplitSeq(text, ",") {
		v, err := strconv.ParseFloat(strings.TrimSpace(part), 64)
		if err != nil || !(v > 0 && v <= 1e9) {
			return fmt.Errorf("found '%s', expected numbers above 0, separated by commas", part)
		}
		*n = append(*n, v)
	}
	return nil
}

// simulate simulates an ensemble under each policy.
func (p *program) simulate(ctx context.Context, args []string) error {
	fs, a := p.flags("simulate"), &simulateCall{}
	a.flags(fs)
	rest, err := arguments(fs, args, 0, 1, "the name of one ensemble, or --graph FILE")
	if err != nil {
		return err
	}
	policies, err := a.check(rest)
	if err != nil {
		return err
	}
	g, err := a.read(ctx, rest)
	if err != nil {
		return err
	}
	if a.shared {
		g.ShareDevice()
	}
	t, err := a.traffic(rest)
	if err != nil {
		return err
	}
	r, err := simulate.Run(ctx, simulate.Settings{
		Graph: g, Limit: time.Duration(a.slo * float64(time.Millisecond)), Traffic: t, Rates: a.ratesOf(g, t), Noise: a.noise,
		Length: time.Duration(a.seconds * float64(time.Second)), Seed: a.seed, Policies: policies,
	})
	if err != nil {
		return err
	}
	if err := a.out.print(p.stdout, r.Data(), func() error { return r.Write(p.stdout) }); err != nil || a.svg == "" {
		return err
	}
	f, err := os.Create(a.svg)
	if err != nil {
		return err
	}
	return errors.Join(r.SVG(f), f.Close())
}

// check checks the flags and returns the policies.
func (a *simulateCall) check(rest []string) (list []sim.Policy, err error) {
	switch {
	case len(rest) == 0 && a.graph == "":
		return nil, misused("simulate", "the name of one ensemble, or --graph FILE")
	case len(rest) > 0 && a.graph != "":
		return nil, usagef("--graph has the graph, expected no ensemble, found '%s'", rest[0])
	case len(a.loads) > 0 && len(a.rates) > 0:
		return nil, usagef("--load and --rate exclude each other")
	}
	for _, f := range []struct {
		name        string
		value, most float64
	}{{"slo-ms", a.slo, 1e9}, {"noise", a.noise, 10}, {"seconds", a.seconds, 1e6}} {
		if !(f.value >= 0 && f.value <= f.most) {
			return nil, usagef("--%s is %v, expected a number from 0 to %v", f.name, f.value, f.most)
		}
	}
	if a.policy == "" {
		return nil, nil
	}
	for name := range strings.SplitSeq(a.policy, ",") {
		i := slices.IndexFunc(sim.Policies, func(p sim.PolicyInfo) bool { return p.Name == strings.TrimSpace(name) })
		if i < 0 {
			var names []string
			for _, p := range sim.Policies {
				names = append(names, p.Name)
			}
			return nil, usagef("there is no policy '%s', expected some of %s", name, strings.Join(names, ", "))
		}
		list = append(list, sim.Policies[i].Policy)
	}
	return list, nil
}

// read returns the graph of the file, or of the server.
func (a *simulateCall) read(ctx context.Context, rest []string) (*simulate.Graph, error) {
	if a.graph != "" {
		return simulate.ReadGraph(a.graph)
	}
	c, err := a.connect.dial(*a.url)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }() // nothing is under way
	s := simulate.Server{Ensemble: rest[0]}
	if s.Plan, s.Configs, err = serverPlan(ctx, c, rest[0]); err != nil {
		return nil, a.connect.explain(ctx, *a.url, explainModel(ctx, c, rest[0], err))
	}
	if s.Statistics, err = c.Statistics(ctx, ""); err != nil {
		return nil, a.connect.explain(ctx, *a.url, err)
	}
	g, err := s.Learn()
	if unknown, ok := errors.AsType[*simulate.UnknownError](err); ok {
		return nil, &failure{exitNotFound, unknown}
	}
	return g, err
}

// traffic returns the arrivals. Of a trace file they are the requests to the ensemble.
func (a *simulateCall) traffic(rest []string) (*simulate.Traffic, error) {
	model := ""
	if len(rest) > 0 {
		model = rest[0]
	}
	t, err := simulate.ReadTraffic(a.arrivals, model, a.seed)
	if err != nil {
		err = fmt.Errorf("--arrivals: %w", err)
	}
	return t, err
}

// ratesOf returns the rates to simulate.
func (a *simulateCall) ratesOf(g *simulate.Graph, t *simulate.Traffic) []float64 {
	switch {
	case len(a.rates) > 0:
		return a.rates
	case len(a.loads) == 0 && t.Recorded():
		return []float64{t.Rate()}
	case len(a.loads) == 0:
		a.loads = numbers{0.5, 0.8, 1, 1.2, 1.5}
	}
	rates := make([]float64, len(a.loads))
	for i, load := range a.loads {
		rates[i] = load * g.Capacity()
	}
	return rates
}
