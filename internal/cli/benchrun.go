package cli

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/benchmark"
	"github.com/tutti-server/tutti/internal/load"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// benchSide is a server and a model that are measured.
type benchSide struct {
	server, model string
	protocol      string
	target        load.Target
	c             client.Manager
	about         *infer.Description
	requests      []load.Request
	order         []string // the models of an ensemble's steps
}

// run measures.
func (a *benchCall) run(ctx context.Context, model string) error {
	sides := [][2]string{{*a.set.url, model}}
	if a.compares() {
		sides = append(sides, [2]string{cmp.Or(a.set.against, *a.set.url), cmp.Or(a.set.againstModel, model)})
	}
	for _, s := range sides {
		side, err := a.open(ctx, s[0], s[1])
		if err != nil {
			return a.connect.explain(ctx, s[0], err)
		}
		defer side.c.Close()
		a.sides = append(a.sides, side)
	}
	first := a.sides[0]
	a.report.Model, a.report.URL, a.report.Protocol, a.report.Order = first.model, first.server, first.protocol, first.order
	a.report.Started = time.Now()
	a.report.Inputs = "random"
	if len(a.set.inputs) > 0 {
		a.report.Inputs = strings.Join(a.set.inputs, ", ")
	}
	a.report.Different, a.report.Sequences = len(first.requests), first.target.Sequences.Length
	if len(a.sides) == 2 {
		return a.compare(ctx)
	}
	for i := range a.loads {
		if err := a.measure(ctx, first, &a.loads[i]); err != nil || ctx.Err() != nil {
			return err
		}
	}
	return nil
}

// open connects to a server, reads what the model is, and sends one request, so that a mistake is found at once.
func (a *benchCall) open(ctx context.Context, server, model string) (*benchSide, error) {
	u, err := client.ParseURL(server)
	if err != nil {
		return nil, &usageError{err}
	}
	s := &benchSide{server: server, model: model}
	if s.protocol, err = a.set.protocolFor(isGRPC(u), server); err != nil {
		return nil, err
	}
	if s.target, err = a.target(u); err != nil {
		return nil, err
	}
	if s.c, err = a.connect.dial(server); err != nil {
		return nil, err
	}
	if err := a.prepare(ctx, s); err != nil {
		return nil, errors.Join(explainModel(ctx, s.c, model, err), s.c.Close())
	}
	return s, nil
}

// prepare sets the requests of a side and tries the first.
func (a *benchCall) prepare(ctx context.Context, s *benchSide) error {
	md, err := s.c.Metadata(ctx, s.model)
	if err != nil {
		return err
	}
	cfg, err := s.c.Config(ctx, s.model)
	if _, refused := errors.AsType[*client.Error](err); err != nil && !refused { // not every server has configurations
		return err
	}
	if err := a.setStreams(s, cfg); err != nil {
		return err
	}
	if len(cfg.GetInput()) == 0 {
		cfg = nil
	}
	s.about = benchmark.Describe(md, cfg)
	s.about.Model = s.model
	if s.requests, err = a.makeRequests(ctx, s.about); err != nil {
		return err
	}
	for i := range s.requests {
		s.requests[i].Version = a.set.version
	}
	s.order = planOrder(ctx, s.c, s.model)
	return a.try(ctx, s)
}

// usualSequence is the number of requests of a sequence, unless --sequence-length has another; it is perf_analyzer's.
const usualSequence = 20

// setStreams selects streams for a decoupled model, and sequences for a model that has them.
func (a *benchCall) setStreams(s *benchSide, cfg *modelconfig.ModelConfig) error {
	length := a.set.sequence
	if length == 0 && cfg.GetSequenceBatching() != nil {
		length = usualSequence
	}
	decoupled := cfg.GetModelTransactionPolicy().GetDecoupled()
	switch over := s.protocol == load.GRPC || s.protocol == load.Stream; {
	case decoupled && !over && a.set.protocol != "" && s.protocol != load.Events:
		return usagef("model '%s' is decoupled: it has any number of responses to a request, which --protocol %s does not have, expected sse, or --url grpc://HOST:PORT", s.model, s.protocol)
	case length > 0 && !over:
		return usagef("the requests of model '%s' are sent in sequences, which needs gRPC, expected --url grpc://HOST:PORT", s.model)
	case decoupled && !over:
		s.protocol = load.Events
	case decoupled:
		s.protocol = load.Stream
	}
	s.target.Sequences = load.Sequences{Length: length, Text: textIDs(cfg)}
	return nil
}

// textIDs reports whether the correlation ids of a model's sequences are texts.
func textIDs(cfg *modelconfig.ModelConfig) bool {
	for _, in := range cfg.GetSequenceBatching().GetControlInput() {
		for _, c := range in.GetControl() {
			if c.GetKind() == modelconfig.ModelSequenceBatching_Control_CONTROL_SEQUENCE_CORRID && c.GetDataType() == modelconfig.DataType_TYPE_STRING {
				return true
			}
		}
	}
	return false
}

func (a *benchCall) makeRequests(ctx context.Context, d *infer.Description) ([]load.Request, error) {
	if len(a.set.inputs) > 0 {
		columns, err := a.set.parseColumns()
		if err != nil {
			return nil, err
		}
		return (&benchmark.Files{Paths: a.set.inputs, Batch: a.set.batch, Columns: columns}).Requests(ctx, d)
	}
	shapes, err := a.set.parseShapes()
	if err != nil {
		return nil, err
	}
	return (&benchmark.Random{Batch: a.set.batch, Shapes: shapes, TextLength: a.set.letters, Seed: a.set.seed}).Requests(d)
}

// tried is the number of requests that are sent before a measurement with shared memory, to learn the size of the outputs.
const tried = 16

// firstFailed is the error of the first request to a model. refused is true if the server says that the request is wrong.
func (a *benchCall) firstFailed(s *benchSide, err error, refused bool) error {
	hint := ""
	if refused && len(a.set.inputs) == 0 {
		hint = "; the inputs are random: --shape sets their shapes, --input reads them from files"
	}
	return fmt.Errorf("the first request to model '%s' failed: %w%s", s.model, err, hint)
}

// tryStream sends the first request over a stream or as a sequence.
func (a *benchCall) tryStream(ctx context.Context, s *benchSide) error {
	group, err := load.Dial(s.target, s.protocol, s.requests[:1], 1)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, group.Interrupt)()
	c := group.Clients[0]
	if err = c.Do(0); err == nil {
		err = load.Finish(c)
	}
	if err = errors.Join(err, group.Close()); err != nil {
		refused, ok := errors.AsType[*load.ResponseError](err)
		return a.firstFailed(s, err, ok && slices.Contains([]string{"", "InvalidArgument", "400"}, refused.Code))
	}
	return nil
}

// try sends the first request.
func (a *benchCall) try(ctx context.Context, s *benchSide) error {
	if s.protocol == load.Stream || s.protocol == load.Events || s.target.Sequences.Length > 0 {
		return a.tryStream(ctx, s)
	}
	n := 1
	if s.protocol == load.Shared {
		n = min(tried, len(s.requests))
	}
	largest := 0
	for i := range n {
		r := &s.requests[i]
		req := &client.Request{Model: r.Model, Version: r.Version, Outputs: r.Outputs}
		for _, t := range r.Inputs {
			req.Inputs = append(req.Inputs, client.Tensor{Name: t.Name, DType: tensor.ParseDType(t.Datatype), Shape: t.Shape, Data: t.Data})
		}
		ctx, cancel := context.WithTimeout(ctx, a.set.timeout)
		resp, err := s.c.Infer(ctx, req)
		cancel()
		if err != nil {
			refused, ok := errors.AsType[*client.Error](err)
			return a.firstFailed(s, err, ok && (strings.HasPrefix(refused.Status, "400") || refused.Status == "InvalidArgument"))
		}
		for j := range resp.Outputs {
			largest = max(largest, len(resp.Outputs[j].Data))
		}
	}
	s.target.OutputBytes = 2*largest + 4096
	return nil
}

// target returns the addresses of a server for package load.
func (a *benchCall) target(u *url.URL) (load.Target, error) {
	o, err := a.connect.options()
	if err != nil {
		return load.Target{}, err
	}
	t := load.Target{Path: u.Path, Header: o.Header, Timeout: a.set.timeout}
	port := "80"
	if strings.HasSuffix(u.Scheme, "s") {
		port, t.TLS = "443", cmp.Or(o.TLS, &tls.Config{MinVersion: tls.VersionTLS12})
	}
	address := net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), port))
	if isGRPC(u) {
		t.GRPC = address
	} else {
		t.HTTP = address
	}
	return t, nil
}

// measure measures one load.
func (a *benchCall) measure(ctx context.Context, s *benchSide, l *benchmark.Load) (err error) {
	session, err := benchmark.Open(s.target, s.protocol, s.requests, *l)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, session.Close()) }()
	r, err := session.Measure(ctx, &benchmark.Plan{
		Warmup: a.set.warmup, Window: a.set.window, Windows: a.set.windows, Tolerance: a.set.tolerance / 100, Duration: a.set.duration,
		Statistics: benchmark.StatisticsOf(s.c), Progress: func(p benchmark.Progress) { a.live.show(loadText(l.Clients, l.Rate) + ": " + progressText(&p)) },
	})
	if r == nil {
		return err
	}
	sortSteps(r.Steps, s.order, s.model)
	a.report.Results = append(a.report.Results, r)
	if err == nil && r.Requests == 0 && len(r.Failures) > 0 {
		err = fmt.Errorf("no request succeeded, for example: %s", r.Failures[0].Example)
	}
	return err
}

// compare measures two sides in rounds.
func (a *benchCall) compare(ctx context.Context) (err error) {
	var sides [2]*benchmark.Side
	for i, s := range a.sides {
		session, failed := benchmark.Open(s.target, s.protocol, s.requests, a.loads[0])
		if failed != nil {
			return failed
		}
		defer func() { err = errors.Join(err, session.Close()) }()
		sides[i] = &benchmark.Side{Name: s.model + " at " + s.server, Session: session, Statistics: benchmark.StatisticsOf(s.c)}
	}
	a.live.show("rounds of both sides")
	c, err := benchmark.Compare(ctx, sides[0], sides[1], &benchmark.Rounds{
		Count: a.set.rounds, Length: a.set.window, Progress: func(round int, x, y *benchmark.Round) {
			a.live.show(fmt.Sprintf("round %d of %d: %.0f and %.0f requests/s", round, a.set.rounds, x.Throughput, y.Throughput))
		},
	})
	for i, s := range a.sides {
		sortSteps(c.Sides[i].Steps, s.order, s.model)
	}
	if len(c.Rounds[0]) > 0 {
		a.report.Comparison = c
	} else if err == nil {
		err = errors.New("no round is complete")
	}
	return err
}

// sortSteps puts steps in the order of an ensemble's plan, and the model itself last.
func sortSteps(steps []benchmark.Step, order []string, model string) {
	rank := func(s *benchmark.Step) int {
		if i := slices.Index(order, s.Model); i >= 0 {
			return i
		}
		if s.Model == model {
			return len(order) + 1
		}
		return len(order)
	}
	slices.SortStableFunc(steps, func(x, y benchmark.Step) int { return cmp.Compare(rank(&x), rank(&y)) })
}

// liveLine is a line that changes on a terminal. Elsewhere it shows nothing.
type liveLine struct {
	w        io.Writer
	terminal bool
	shown    bool
}

func (l *liveLine) show(text string) {
	if l.terminal {
		l.shown = true
		fmt.Fprint(l.w, "\r\x1b[K"+cut(l.w, text))
	}
}

// end removes the line.
func (l *liveLine) end() {
	if l.shown {
		fmt.Fprint(l.w, "\r\x1b[K")
	}
}
