// Package textapi serves the routes of OpenAI, Cohere, Jina and Text Embeddings Inference over models whose parameters say which tensors
// carry what these routes have (config.API). It executes by the same infer.Inferer as the routes of the v2 protocol, within the same limits.
//
//   - textapi.go: Service; the state of one request, pooled
//   - models.go: which models have which API, and the one that a request means
//   - read.go: members of a body, and the texts in it
//   - run.go: texts become requests of at most max_batch_size rows, which are executed concurrently; their results per text
//   - respond.go: vectors in JSON and base64, and the response
//   - embeddings.go, rerank.go, tei.go, tokenize.go, completions.go (with extra.go): the routes
//
// For example, POST /v1/embeddings with {"input":["a","b"],"model":"m"}: the texts stay where they are in the body, run copies them into
// one tensor, and the rows of the output are printed from the memory of the model.
package textapi

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/pool"
	"github.com/tutti-server/tutti/internal/server/httpapi/jsonwire"
	"github.com/tutti-server/tutti/internal/server/httpapi/transport"
	"github.com/tutti-server/tutti/internal/tracing"
)

// Service serves the routes. Its methods return handlers, and are safe for concurrent use.
type Service struct {
	*transport.Shared

	started int64 // seconds since 1970
	models  atomic.Pointer[directory]

	completions atomic.Int64 // their number, for their ids
}

// New returns a Service.
func New(s *transport.Shared) *Service { return &Service{Shared: s, started: time.Now().Unix()} }

const (
	// scratchLimit bounds each buffer that a pooled exchange keeps between requests.
	scratchLimit = 2 << 20
	// itemLimit bounds the lists that it keeps.
	itemLimit = 1024
)

// exchange is the state of one request, from its body to its response. The handler's goroutine owns it, but for run.
type exchange struct {
	srv   *Service
	r     *http.Request
	w     http.ResponseWriter
	form  transport.ErrorForm
	route string
	in    transport.Body
	p     jsonwire.Parser
	span  tracing.Interval // in which the request was received

	model   served
	api     *config.API
	outputs []string // the outputs that the request needs

	fields  fields
	items   []item   // the texts that are executed
	extra   []extra  // of completions
	batches []batch  // the requests that they become
	results []result // those of the texts, in the order of the request
	tokens  int      // of all texts

	body   []byte    // the request's JSON, memory that is reused like the next ones
	out    []byte    // the response, or its next part
	floats []float32 // a vector that is cut
	order  []int     // of a ranking

	begun bool // a part of the response is written
	sink  responseWriter
}

// fields are the members of requests, of all routes.
type fields struct {
	model      string
	field      string // the member that has the texts
	ids        bool   // the texts are token ids
	base64     bool
	itemErrors bool // a text that fails has its own error
	dense      bool
	sparse     bool
	multi      bool
	dimensions int
	query      jsonwire.Mark
	queryLen   int // encoded; 0 without a query
	topN       int // 0 for all
	documents  bool
	raw        bool
	normalize  bool
	truncate   bool // too long texts are cut
	refuse     bool // too long texts are refused, also where the model would cut them
	special    bool
	stream     bool
	usage      bool // the stream has the usage at its end
}

var exchanges pool.Of[exchange]

func (s *Service) newExchange(w http.ResponseWriter, r *http.Request) *exchange {
	x := exchanges.Get()
	x.srv, x.r, x.w, x.span = s, r, w, s.Tracer.Begin()
	x.in.Begin(s.Shared)
	x.in.Charge.For(s.Client(r))
	return x
}

// release returns x to the pool, without the memory that a large request needed.
func (x *exchange) release() {
	for i := range x.batches {
		if resp := x.batches[i].resp; resp != nil {
			resp.Release()
		}
	}
	clear(x.batches)
	clear(x.results)
	x.in.Release()
	x.p.Release(scratchLimit)
	next := exchange{
		p: x.p, body: trim(x.body, scratchLimit), out: trim(x.out, scratchLimit), floats: trim(x.floats, scratchLimit/4),
		items: trim(x.items, itemLimit), batches: trim(x.batches, itemLimit), results: trim(x.results, itemLimit), order: trim(x.order, itemLimit),
		outputs: x.outputs[:0], extra: trim(x.extra, itemLimit),
	}
	*x = next
	exchanges.Put(x)
}

func trim[T any](s []T, limit int) []T {
	if cap(s) > limit {
		return nil
	}
	return s[:0]
}

// handler returns the handler of a route. serve reads the request and writes the response, or returns the error of the request.
func (s *Service) handler(form transport.ErrorForm, route string, serve func(*exchange) error) transport.Handler {
	return func(w http.ResponseWriter, r *http.Request, _ transport.Path) {
		x := s.newExchange(w, r)
		defer x.release()
		x.form, x.route = form, route
		s.Load.Begin()
		err := serve(x)
		s.Load.End(err)
		if err != nil {
			s.Load.SetHeader(w.Header(), r.Header)
			s.RejectIn(form, w, r, err)
		}
	}
}

// invalid returns an error about a member of the request.
func invalid(param, format string, args ...any) error {
	return &transport.FieldError{Param: param, Err: status.Errorf(status.InvalidArg, format, args...)}
}

// describe looks the model up and makes it that of the request.
func (x *exchange) describe(of kind) error {
	m, err := x.srv.resolve(x.r, x.fields.model, of)
	if err != nil {
		return err
	}
	x.model, x.api = *m, of.api(&m.apis)
	return nil
}

// want adds an output to those that the request needs.
func (x *exchange) want(names ...string) {
	for _, name := range names {
		if name != "" {
			x.outputs = append(x.outputs, name)
		}
	}
}

// input returns the description of an input of the model.
func (x *exchange) input(name string) *infer.Port {
	for i := range x.model.desc.Inputs {
		if p := &x.model.desc.Inputs[i]; p.Name == name {
			return p
		}
	}
	return nil
}
