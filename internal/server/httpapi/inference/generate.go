package inference

import (
	"context"
	"net/http"
	"slices"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/server/httpapi/jsonwire"
	"github.com/tutti-server/tutti/internal/server/httpapi/tensorjson"
	"github.com/tutti-server/tutti/internal/server/httpapi/transport"
	"github.com/tutti-server/tutti/internal/tracing"
)

var errNotOneResponse = status.Errorf(status.Unsupported, "generate expects model to produce exactly 1 response, use generate stream for model that generates various number of responses")

// Generate responds with the model's only response as one flat JSON object.
func (s *Service) Generate(w http.ResponseWriter, r *http.Request, p transport.Path) {
	s.generate(w, r, p, false, func(x *exchange, q *transport.Queue, cancel context.CancelFunc) {
		first, n, err := onlyResponse(q, cancel)
		defer first.Release()
		switch {
		case n == 0 && err != nil:
			transport.WriteError(w, err)
		case n == 1 && err != nil:
			transport.WriteErrorAs(w, http.StatusOK, err)
		case n != 1:
			// The first response, or the end without one, has decided the status.
			transport.WriteErrorAs(w, http.StatusOK, errNotOneResponse)
		default:
			first.Trace.Mark(tracing.HTTPSendStart)
			defer first.Trace.Mark(tracing.HTTPSendEnd)
			x.in.Charge.Add(first.Size())
			if x.out, err = x.appendResponse(x.out[:0], first); err != nil {
				transport.WriteError(w, err)
				return
			}
			x.in.Charge.Add(int64(len(x.out)))
			transport.WriteBody(w, x.out)
		}
	})
}

// GenerateStream responds with each of the model's responses as a server-sent event.
func (s *Service) GenerateStream(w http.ResponseWriter, r *http.Request, p transport.Path) {
	s.generate(w, r, p, true, func(x *exchange, q *transport.Queue, cancel context.CancelFunc) {
		// A client that reads nothing holds the model back, so each event must be read within the stall time.
		e := eventWriter{s.EventWriter(w, cancel), x}
		cut, leave := s.Streams.Enter()
		defer leave()
		for {
			next, err := q.Next(cut)
			if err != nil {
				e.cutOff(err)
				leave()
				cut = nil
				continue
			}
			if next.Response == nil {
				e.end(next.Err)
				return
			}
			e.response(next.Response)
			next.Response.Release()
		}
	})
}

// generate reads and submits a generate request, and calls respond to empty the queue of its responses. A model that may have
// more than one response runs on another goroutine, since this one must take them.
func (s *Service) generate(w http.ResponseWriter, r *http.Request, p transport.Path, stream bool,
	respond func(*exchange, *transport.Queue, context.CancelFunc),
) {
	x := s.newExchange(r)
	defer x.release()
	x.req = infer.NewRequest()
	err := x.readGenerate(w, r, p)
	x.received(r.Header)
	s.Load.Begin()
	defer func() { s.Load.End(err) }()
	s.Load.SetHeader(w.Header(), r.Header)
	if err != nil {
		x.reject(p, err)
		s.Reject(w, r, err)
		return
	}
	q := transport.NewQueue()
	defer q.Release()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	req := x.req
	x.req = nil
	req.Async, req.Early = stream || x.desc.Decoupled, stream
	s.Settings.Infer.Submit(ctx, req, q)
	respond(x, q, cancel)
}

// readGenerate decodes the request: a JSON object whose members are inputs, where the model has one of that name, or
// parameters. The object in its member "parameters" has the same meaning; "id" is the request's id. For example:
// {"text_input":"hi","max_tokens":20}.
func (x *exchange) readGenerate(w http.ResponseWriter, r *http.Request, p transport.Path) error {
	_, err := infer.ParseVersion(p.Version)
	if err == nil {
		err = transport.RequireIdentity(r)
	}
	if err == nil {
		err = x.describe(p)
	}
	if err == nil {
		x.body, err = x.in.ReadDocument(w, r, &x.p, x.body, false)
	}
	if err == nil {
		err = x.readGenerateMembers(false)
	}
	if err == nil {
		err = x.checkInputs()
	}
	return err
}

// onlyResponse waits for all responses and returns the first, an empty one when there is none, and their number. It cancels the
// request after the second.
func onlyResponse(q *transport.Queue, cancel context.CancelFunc) (first *infer.Response, n int, err error) {
	for {
		next, _ := q.Next(nil) // nothing cuts it off
		switch {
		case next.Response == nil && first == nil:
			return infer.NewResponse(), n, next.Err
		case next.Response == nil:
			return first, n, next.Err
		case first == nil:
			first = next.Response
		default:
			next.Response.Release()
			cancel()
		}
		n++
	}
}

// eventWriter sends the responses of one request as events.
type eventWriter struct {
	transport.EventWriter

	x *exchange
}

// response sends a response as an event. One that has no JSON form becomes an error event.
func (e *eventWriter) response(resp *infer.Response) {
	if e.Broken() {
		return
	}
	x := e.x
	resp.Trace.Mark(tracing.HTTPSendStart)
	defer resp.Trace.Mark(tracing.HTTPSendEnd)
	b, err := x.appendResponse(append(x.out[:0], "data: "...), resp)
	x.out = b
	if err != nil {
		e.failure(err)
		return
	}
	size := resp.Size() + int64(len(b))
	x.in.Charge.Add(size)
	e.send(http.StatusOK)
	x.in.Charge.Shrink(size)
}

// end completes the stream. A request that failed before its first response and execution has a plain error response.
func (e *eventWriter) end(err error) {
	switch {
	case e.Broken():
	case err == nil:
	case !e.Begun() && notStarted(err):
		transport.WriteError(e.W, err)
		return
	default:
		e.failure(err)
	}
	e.End()
}

// failure sends an error as an event. As the first event it sets the status.
func (e *eventWriter) failure(err error) {
	if !e.Begun() {
		transport.SetErrorHeader(e.W.Header(), err)
	}
	e.x.out = transport.AppendError(append(e.x.out[:0], "data: "...), err)
	e.send(status.CodeOf(err).HTTP())
}

// cutOff sends the error of a stream that does not end by itself as its last event, and cancels the request.
func (e *eventWriter) cutOff(err error) {
	if !e.Broken() {
		e.failure(err)
	}
	e.Break()
}

// send sends the event in x.out.
func (e *eventWriter) send(code int) {
	e.x.out = append(e.x.out, "\n\n"...)
	e.Send(e.x.out, code)
}

func (x *exchange) readGenerateMembers(nested bool) error {
	return x.p.Object(func(name []byte) error { return x.readGenerateMember(x.srv.names.Get(name), nested) })
}

func (x *exchange) readGenerateMember(name string, nested bool) error {
	if name == "parameters" && !nested {
		if x.p.Peek() != '{' {
			return status.Errorf(status.Internal, "Expected JSON object for keyword: 'parameters': %s", jsonwire.NotObject)
		}
		if err := x.readGenerateMembers(true); err != nil {
			return status.Prefixf(err, "Converting keyword: 'parameters': ")
		}
		return nil
	}
	for i := range x.desc.Inputs {
		if x.desc.Inputs[i].Name == name {
			return x.readGenerateInput(&x.desc.Inputs[i])
		}
	}
	if name == "id" && !nested {
		id, err := x.p.Text("id")
		x.req.ID = string(id)
		return err
	}
	return x.readGenerateParameter(name)
}

// readGenerateParameter reads a parameter of the sequence, or one for the model.
func (x *exchange) readGenerateParameter(name string) (err error) {
	switch s := &x.req.Sequence; name {
	case "sequence_id":
		return x.readSequenceID()
	case "sequence_start":
		s.Start, err = x.p.Bool(name)
	case "sequence_end":
		s.End, err = x.p.Bool(name)
	default:
		return x.readCustomParameter(name)
	}
	return err
}

// readGenerateInput reads a scalar or nested arrays into a tensor of the input's type and shape. It reads twice: for the size, and
// for the values.
func (x *exchange) readGenerateInput(port *infer.Port) error {
	in := input{name: port.Name, dtype: port.DType}
	if err := tensorjson.Readable(in.name, in.dtype); err != nil {
		return err
	}
	start := x.p.Mark()
	n, size, err := tensorjson.Measure(&x.p, in.dtype)
	if err != nil {
		return err
	}
	var ok bool
	if in.shape, ok = fitShape(port.Shape, n); !ok {
		return status.Errorf(status.InvalidArg, "The schema can not convert input '%s' to tensor with proper shape", in.name)
	}
	x.p.Reset(start)
	if err := x.fillInput(&in, size, true); err != nil {
		return err
	}
	x.req.Inputs = append(x.req.Inputs, infer.Named{Name: in.name, Tensor: in.tensor})
	return nil
}

// fitShape returns the shape of n elements: the innermost variable dimension takes what the fixed ones leave, and the other
// variable ones are 1. It returns false if no such shape exists. For example, 6 elements of [-1,3,-1] have the shape [1,3,2].
func fitShape(want tensor.Shape, n int64) (tensor.Shape, bool) {
	var few [8]int64
	dims := append(few[:0], want.Dims()...)
	if slices.Contains(dims, 0) { // variable dimensions are 1, and there are no elements
		for i, d := range dims {
			dims[i] = max(d, -d)
		}
		return tensor.Of(dims...), n == 0
	}
	for _, d := range dims {
		if d < 0 {
			continue
		}
		if n%d != 0 {
			return want, false
		}
		n /= d
	}
	for i := len(dims) - 1; i >= 0; i-- {
		if dims[i] < 0 {
			dims[i], n = n, 1
		}
	}
	return tensor.Of(dims...), n == 1
}
