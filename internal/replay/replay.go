// Package replay executes captured requests again and compares their tensors with the captured ones.
//
//   - replay.go: Run, which sends the requests, and its report
//   - capture.go: the files of captured requests, and the requests in them
//   - tensors.go: the tensors of a captured request and of its replay, side by side
//   - compare.go: the difference of two tensors
//   - print.go: the report for people
package replay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/inspect"
	"github.com/tutti-server/tutti/internal/tensordiff"
	"github.com/tutti-server/tutti/internal/tracing"
	"github.com/tutti-server/tutti/internal/tracing/capture"
)

// Recorder captures the requests that are replayed.
type Recorder interface {
	// Record calls send once, which sends a request with this trace to a model, and returns the error of send. It calls use with
	// the captured request, unless the server refused it before it could be captured.
	Record(ctx context.Context, model string, trace tracing.TraceID, send func() error, use func(*capture.File) error) (sent, failed error)
}

// Settings are the parameters of Run.
type Settings struct {
	Client client.Client
	// Recorder makes the tensors of every step known. Without it only responses are compared. Optional.
	Recorder Recorder
	// Absolute and Relative replace the tolerance of every floating-point type. Optional.
	Absolute, Relative *float64
	// Ignore are patterns of tensors STEP.TENSOR that are not compared, in which * is any text and ? a character.
	Ignore []string
	// Explain completes the error of a request to a model. Optional.
	Explain func(ctx context.Context, model string, err error) error
	// Equal receives every request whose tensors were equal, with the outputs of its last response as they were captured: those whose
	// contents the capture has and that are not ignored. Optional.
	Equal func(c *Capture, req *client.Request, outputs []client.Tensor) error

	_ struct{}
}

// What Report.Compared says.
const (
	ComparedSteps     = "steps"
	ComparedResponses = "responses"
)

// Report is the result of Run.
type Report struct {
	Against  string    `json:"against"`
	Compared string    `json:"compared"` // "steps" or "responses"
	Requests int       `json:"requests"`
	Equal    int       `json:"equal"`
	Distinct int       `json:"different"`
	Failed   int       `json:"failed"`
	Results  []*Result `json:"results"`
	// FirstError is the error of the first request that failed.
	FirstError error `json:"-"`
}

// What Result.Outcome says.
const (
	OutcomeEqual     = "equal"
	OutcomeDifferent = "different"
	OutcomeFailed    = "failed"
)

// Result is the result of one captured request.
type Result struct {
	File    string `json:"file"`
	Trace   string `json:"trace_id,omitempty"`
	Request string `json:"request_id,omitempty"`
	Model   string `json:"model,omitempty"`
	Outcome string `json:"outcome"`
	Error   string `json:"error,omitempty"` // the reason of OutcomeFailed
	// Step is the first step of the graph with a difference. Differences are those of all steps, in the order of the graph.
	Step        string       `json:"step,omitempty"`
	Differences []Difference `json:"differences,omitempty"`
	// Tensors were compared. Of Unknown ones the capture or the replay has no content.
	Tensors int `json:"tensors"`
	Unknown int `json:"unknown,omitempty"`
}

// replayer is the state of one Run.
type replayer struct {
	*Settings
	sequences map[sequenceKey]*sequence
	decoupled map[string]bool // by model
}

// unreachable is the error of a server that cannot be reached any more.
type unreachable struct{ err error }

func (e *unreachable) Error() string { return e.err.Error() }
func (e *unreachable) Unwrap() error { return e.err }

// Run replays captured requests one after another, in their order. It returns the report of those that it has replayed also
// with an error: when ctx is done, or when the server cannot be reached.
func Run(ctx context.Context, captures []*Capture, s Settings) (*Report, error) {
	r := &replayer{Settings: &s, sequences: map[sequenceKey]*sequence{}, decoupled: map[string]bool{}}
	report := &Report{Compared: ComparedResponses, Results: []*Result{}}
	if s.Recorder != nil {
		report.Compared = ComparedSteps
	}
	for _, c := range captures {
		res, err := r.one(ctx, c)
		if ctx.Err() != nil {
			return report, ctx.Err()
		}
		report.add(res, err)
		if _, over := errors.AsType[*unreachable](err); over {
			return report, err
		}
	}
	return report, nil
}

// add adds the result of a request.
func (p *Report) add(res *Result, err error) {
	p.Requests++
	p.Results = append(p.Results, res)
	switch {
	case err != nil:
		res.Outcome, res.Error = OutcomeFailed, err.Error()
		if p.Failed++; p.FirstError == nil {
			p.FirstError = err
		}
	case len(res.Differences) > 0:
		res.Outcome = OutcomeDifferent
		p.Distinct++
	default:
		res.Outcome = OutcomeEqual
		p.Equal++
	}
	if len(res.Differences) > 0 {
		res.Step = res.Differences[0].Step
	}
}

// one replays a request.
func (r *replayer) one(ctx context.Context, c *Capture) (res *Result, err error) {
	res = &Result{File: c.Path, Trace: c.About.Trace, Request: c.About.Request, Model: c.About.Model}
	if c.Err != nil {
		return res, c.Err
	}
	seq := r.sequenceOf(&c.About)
	if seq != nil && seq.broken != "" {
		return res, fmt.Errorf("the model's state is unknown: %s of the same sequence was not replayed", seq.broken)
	}
	called := false // the model has executed the request, or refused it as it would have done then
	err = c.open(func(f *capture.File) error {
		req, err := requestOf(f)
		if err != nil {
			return err
		}
		if seq != nil {
			q := f.Sent.Sequence
			req.Sequence = &client.Sequence{ID: seq.id, Name: seq.name, Start: q.Start, End: q.End}
		}
		return r.replay(ctx, c, f, req, res, &called)
	})
	if err != nil && seq != nil && !called {
		seq.broken = "'" + c.Path + "'"
	}
	return res, err
}

// replay sends a request and compares its tensors.
func (r *replayer) replay(ctx context.Context, c *Capture, f *capture.File, req *client.Request, res *Result, called *bool) error {
	trace := tracing.NewContext("")
	req.TraceParent = trace.Parent()
	var responses []*client.Response
	send := func() (err error) {
		responses, err = r.send(ctx, req)
		refusal, ok := errors.AsType[*client.Error](err)
		*called = err == nil || ok && refusal.Status != unavailable
		return err
	}
	recorded := ""
	var sent error
	if r.Recorder == nil {
		sent = send()
		if err := r.compareResponses(f, responses, sent, res); err != nil {
			return err
		}
	} else {
		var failed error
		sent, failed = r.Recorder.Record(ctx, req.Model, trace.ID, send, func(now *capture.File) error {
			recorded = now.Status
			return r.compareSteps(f, now, res)
		})
		if failed != nil && !r.reachable(ctx) {
			return &unreachable{failed}
		}
		if failed != nil {
			return failed
		}
	}
	switch {
	case errors.Is(sent, errNoStream):
		return sent
	case r.gone(ctx, sent):
		return &unreachable{sent}
	case sent != nil && f.Status == succeeded && r.Explain != nil:
		return r.Explain(ctx, req.Model, sent)
	case sent != nil && f.Status == succeeded:
		return sent
	}
	if d := statusDifference(f.Status, recorded, sent); d != nil {
		res.Differences = append(res.Differences, *d)
	}
	if sent == nil && f.Status == succeeded && len(res.Differences) == 0 && r.Equal != nil {
		outputs, err := r.outputs(f, responses)
		if err != nil {
			return err
		}
		return r.Equal(c, req, outputs)
	}
	return nil
}

// isRefusal reports whether an error is the response of a server, or of gRPC in its place.
func isRefusal(err error) bool {
	_, ok := errors.AsType[*client.Error](err)
	return ok
}

// unavailable is the code of gRPC for requests that the server does not take, and for those that do not reach it.
const unavailable = "Unavailable"

// gone reports whether the error of a request says that the server cannot be reached.
func (r *replayer) gone(ctx context.Context, err error) bool {
	refusal, ok := errors.AsType[*client.Error](err)
	switch {
	case err == nil || errors.Is(err, errNoStream):
		return false
	case !ok:
		return true
	}
	return refusal.Status == unavailable && !r.reachable(ctx)
}

// reachable reports whether the server responds.
func (r *replayer) reachable(ctx context.Context) bool {
	_, err := r.Client.Ready(ctx)
	refusal, ok := errors.AsType[*client.Error](err)
	return err == nil || ok && refusal.Status != unavailable
}

// errNoStream is the error of a decoupled model over a protocol with one response.
var errNoStream = errors.New("it is decoupled, so that a request has any number of responses, which need gRPC: expected --against grpc://HOST:PORT, or grpcs:// with TLS")

// send sends a request and returns its responses.
func (r *replayer) send(ctx context.Context, req *client.Request) (list []*client.Response, err error) {
	several, known := r.decoupled[req.Model]
	if !known {
		if several, err = r.Client.Decoupled(ctx, req.Model, ""); err != nil && !isRefusal(err) { // not every server has configurations
			return nil, err
		}
		r.decoupled[req.Model] = several
	}
	if !several {
		resp, err := r.Client.Infer(ctx, req)
		if err != nil {
			return nil, err
		}
		return []*client.Response{resp}, nil
	}
	s, ok := r.Client.(client.Streamer)
	if !ok {
		return nil, fmt.Errorf("model '%s': %w", req.Model, errNoStream)
	}
	err = s.Stream(ctx, req, func(resp *client.Response) error {
		if len(resp.Outputs) > 0 {
			list = append(list, resp)
		}
		return nil
	})
	return list, err
}

// The status of a captured request that succeeded, and of one that ended the process of its model.
const (
	succeeded = "ok"
	crashed   = "crashed"
)

// reproducible are the statuses of requests that fail again. Others depend on the load of the server, or on the client.
func reproducible(status string) bool {
	return slices.Contains([]string{crashed, "invalid_argument", "not_found", "unsupported", "internal", "unknown", "already_exists"}, status)
}

// statusDifference compares how a request ended. now is empty if it is not known why the request failed.
func statusDifference(then, now string, sent error) *Difference {
	switch {
	case then == succeeded || !reproducible(then):
		return nil
	case sent == nil:
		return &Difference{Difference: *difference(KindStatus, then, succeeded)}
	case now != "" && now != then && then != crashed:
		return &Difference{Difference: *difference(KindStatus, then, now)}
	}
	return nil
}

// Tolerance returns the tolerance for a type.
func (s *Settings) Tolerance(d tensor.DType) tensordiff.Tolerance {
	return tensordiff.DefaultTolerance(d).With(s.Absolute, s.Relative)
}

// ignored reports whether a tensor is not to be compared.
func (r *replayer) ignored(step, name string) bool {
	return slices.ContainsFunc(r.Ignore, func(pattern string) bool { return capture.MatchGlob(pattern, step+"."+name) })
}

// outputsOf returns the outputs of the response that are this tensor.
func outputsOf(x *inspect.TensorView) (list []string) {
	if x.Step == tracing.ResponseStep {
		return []string{x.Tensor}
	}
	for _, reader := range x.Readers {
		if name, ok := strings.CutPrefix(reader, tracing.ResponseStep+"."); ok {
			list = append(list, name)
		}
	}
	return list
}
