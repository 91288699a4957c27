package httpapi

import (
	"context"
	"net/http"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/tracing"
)

const notOneAnswer = "generate expects model to produce exactly 1 response, use generate stream for model that generates various number of responses"

var eventType = []string{"text/event-stream; charset=utf-8"}

// generate answers with a model's only answer as one flat JSON object.
func (s *Server) generate(w http.ResponseWriter, r *http.Request, t target) {
	x := s.newExchange()
	defer x.release()
	a, decoupled, err := x.ask(w, r, t)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	defer a.release()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	x.start(ctx, a, decoupled)
	first, n, err := onlyAnswer(a, cancel)
	defer first.Release()
	switch {
	case n == 0 && err != nil:
		writeError(w, err)
	case n == 1 && err != nil:
		writeErrorText(w, http.StatusOK, err.Error())
	case n != 1:
		// The first answer, or the end without one, has settled the status.
		writeErrorText(w, http.StatusOK, notOneAnswer)
	default:
		x.writeAnswer(w, first)
	}
}

func (x *exchange) writeAnswer(w http.ResponseWriter, resp *infer.Response) {
	var err error
	x.sends(resp)
	defer resp.Trace.Mark(tracing.HTTPSendEnd)
	x.charge.Add(resp.Size())
	if x.out, err = x.appendAnswer(x.out[:0], resp); err != nil {
		writeError(w, err)
		return
	}
	x.charge.Add(int64(len(x.out)))
	writeBody(w, x.out)
}

// onlyAnswer takes all answers and returns the first, an empty one when there was
// none, and their number. What comes after the first is given up.
func onlyAnswer(a *answers, cancel context.CancelFunc) (first *infer.Response, n int, err error) {
	for {
		resp, err := a.next()
		switch {
		case resp == nil && first == nil:
			return infer.NewResponse(), n, err
		case resp == nil:
			return first, n, err
		case first == nil:
			first = resp
		default:
			resp.Release()
			cancel()
		}
		n++
	}
}

// generateStream answers with each of a model's answers as a server-sent event.
func (s *Server) generateStream(w http.ResponseWriter, r *http.Request, t target) {
	x := s.newExchange()
	defer x.release()
	a, _, err := x.ask(w, r, t)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	defer a.release()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	x.start(ctx, a, true)
	// The model is held back while its client takes nothing, so that may not last.
	e := events{w: w, cancel: cancel, patience: patient{w: w, stall: s.stall}}
	for {
		resp, err := a.next()
		if resp == nil {
			e.end(x, err)
			return
		}
		e.answer(x, resp)
		resp.Release()
	}
}

// events writes server-sent events.
type events struct {
	w      http.ResponseWriter
	cancel context.CancelFunc
	// patience bounds how long an event may wait to be taken.
	patience patient
	begun    bool
	broken   bool // nobody reads any more
}

// answer sends one answer; one that cannot be printed is an event of its own.
func (e *events) answer(x *exchange, resp *infer.Response) {
	if e.broken {
		return
	}
	x.sends(resp)
	defer resp.Trace.Mark(tracing.HTTPSendEnd)
	b, err := x.appendAnswer(append(x.out[:0], "data: "...), resp)
	x.out = b
	if err != nil {
		e.failure(x, err)
		return
	}
	size := resp.Size() + int64(len(b))
	x.charge.Add(size)
	e.send(x, http.StatusOK)
	x.charge.Give(size)
}

// end says how the request ended. A request that was refused before it had an
// answer is answered like any other that is.
func (e *events) end(x *exchange, err error) {
	switch {
	case e.broken:
	case err == nil && !e.begun:
		e.w.Header()["Content-Type"] = eventType
	case err == nil:
	case !e.begun && refused(err):
		writeError(e.w, err)
		return
	default:
		e.failure(x, err)
	}
	if e.begun {
		e.patience.end()
	}
}

// refused tells failures to begin from failures to run.
func refused(err error) bool {
	switch status.CodeOf(err) {
	case status.InvalidArg, status.NotFound, status.Unavailable, status.Unsupported:
		return true
	default:
		return false
	}
}

// failure sends an error as an event. Only as the first event it chooses the status.
func (e *events) failure(x *exchange, err error) {
	x.out = appendError(append(x.out[:0], "data: "...), status.Text(err))
	e.send(x, status.CodeOf(err).HTTP())
}

// send ends the event in x.out and writes it through to the client. When that fails,
// there is nobody left to answer.
func (e *events) send(x *exchange, code int) {
	x.out = append(x.out, "\n\n"...)
	if !e.begun {
		e.begun = true
		e.w.Header()["Content-Type"] = eventType
		e.w.WriteHeader(code)
	}
	_, err := e.patience.Write(x.out)
	if err == nil {
		err = http.NewResponseController(e.w).Flush()
	}
	if err != nil {
		e.broken = true
		e.cancel()
	}
}

// ask decodes a generate request and returns the sink to start it with, and whether
// its model may have any number of answers.
func (x *exchange) ask(w http.ResponseWriter, r *http.Request, t target) (*answers, bool, error) {
	x.req = infer.NewRequest()
	d, err := x.takePrompt(w, r, t)
	x.arrived(r.Header)
	if err != nil {
		x.refuse(t, err)
		return nil, false, err
	}
	return newAnswers(), d.Decoupled, nil
}

// takePrompt makes the request of what the client sends.
func (x *exchange) takePrompt(w http.ResponseWriter, r *http.Request, t target) (*infer.Description, error) {
	if _, err := infer.ParseVersion(t.version); err != nil {
		return nil, err
	}
	if err := plainBody(r); err != nil {
		return nil, err
	}
	d, err := x.describe(t)
	if err == nil {
		err = x.prompt(w, r, d)
	}
	return d, err
}

// start submits the request. A model with many answers must not run on this
// goroutine, which takes them away.
func (x *exchange) start(ctx context.Context, a *answers, async bool) {
	req := x.req
	x.req = nil
	req.Async = async
	x.srv.infer.Submit(ctx, req, a)
}

// plainBody refuses a body in any encoding.
func plainBody(r *http.Request) error {
	if v := r.Header.Get("Content-Encoding"); v != "" && v != "identity" {
		return status.Errorf(status.InvalidArg, "Unsupported content-encoding, only 'identity' is supported.")
	}
	return nil
}
