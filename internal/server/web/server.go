// Package web serves the dashboard and its JSON API. It is mounted under /ui/ of the HTTP port. Every address below
// is relative to the mount point, so the dashboard works behind a path prefix.
//
// Reads are open. Changes need the header "Authorization: Bearer TOKEN" with the dashboard's token; a server
// without a token refuses them with 403. Where restrictions protect categories of the API, the same header and
// value open the same data here: traces need "trace", models "statistics" and "metadata", graphs "model-config",
// inference "inference", loading "model-repository".
//
// Failures are {"error": TEXT} with the status of their code. Durations and offsets are nanoseconds and end in _ns.
// Times since 1970 are microseconds and end in _us. Rates are per second. The types are those of package inspect,
// which documents their fields.
//
//	GET api/server              ServerView
//	GET api/session             {"token": BOOL, "admitted": BOOL}: the server has a token; the request sent it
//	GET api/models              {"models": [ModelView]}
//	GET api/models/MODEL        ModelDetail: configuration, versions, instances, loads
//	GET api/history             HistoryView of the server and its busiest models; all parameters are optional:
//	                            ?from_us= ?to_us= (now) ?seconds=3600 (without from_us) ?steps=240 (at most 1000) ?top=5 (at most 20)
//	                            ?model=NAME: of that model
//	GET api/graph/MODEL         GraphView of the preferred version; ?version=N selects another one
//	GET api/models/MODEL/examples   {"examples": [ExampleView]}: the golden requests of the model's folder
//	GET api/traces              TraceList, newest first; all parameters are optional:
//	                            ?request= ?trace= ?model= ?status=ok|failed|CODE ?retained=failed|slow|requested|sampled
//	                            ?min_ns= ?max_ns= ?from_us= ?to_us= ?param=KEY&value=TEXT
//	                            ?limit=50 (at most 1000) ?cursor=(next of the previous page)
//	                            ?after=(newest of an earlier list)
//	GET api/traces/ID           TraceView: spans, events, split, predictions, requests of the same batches; 404 once the store has evicted it
//	                            ID may be TRACE-SPAN where several requests share a trace id
//	GET api/traces/ID?as=text   the same as text/plain, as "tutti why" prints it
//	GET api/traces/ID?as=otlp   a file: the spans as OTLP JSON; ?as=perfetto as Chrome JSON, which ui.perfetto.dev opens
//	GET api/batches/ID          BatchView
//	GET api/timeline            TimelineView: what ran on each instance; all parameters are optional: ?from_us= ?to_us= (the last 10 s),
//	                            ?model=NAME, which may be repeated, ?limit=2000 (at most 4096)
//	GET api/sampling            Sampling
//	PUT api/sampling            changes and returns Sampling; needs the token
//	GET api/captures            CaptureList; a capture stores the tensors of selected requests
//	POST api/captures           starts a capture from a CaptureRule and returns its CaptureView; needs the token
//	GET api/captures/ID         CaptureView
//	DELETE api/captures/ID      ends the capture, keeps its tensors, returns its CaptureView; needs the token
//	GET api/traces/ID/tensors   TensorList of a request whose trace says "captured"; previews need the
//	                            token, and png in them is base64
//	GET api/traces/ID/tensors/N.npy, api/traces/ID/capture.npz   one tensor, or all, as NumPy files;
//	                            need the token
//	GET api/events              server-sent events, one JSON object each:
//	                            "server" ServerView at once and every second; "models" [ModelView] at once, and again when models
//	                            are gone; "changed" [ModelView] every second, those that are new or changed;
//	                            "trace" TraceSummary of traces as they are stored, at most 20 a second
//	POST api/models/MODEL/load      {"config": JSON} replaces config.pbtxt; returns {}; needs the token
//	POST api/models/MODEL/unload    returns {}; needs the token
//
// The kinds in "split", in the order in which a request passes them:
//
//	receive    socket and decode                                node -1
//	scheduler  the server's own overhead                        node of the step, -1 before the first and after the last
//	limit      waiting for max_inflight_requests                node, model
//	queue      waiting behind another batch                     node, model, batch: the one the instance was executing
//	mates      waiting for other requests to join the batch     node, model
//	copies     gather, scatter and device copies                node, model
//	padding    the share of the compute time spent on padding   node, model, batch
//	compute    the model                                        node, model, batch
//	native     a step in this process                           node, model, batch
//	cache      response cache lookup                            node, model
//	encode     encode and socket                                node -1
//
// The pages are in ui/, in TypeScript. "make ui" builds them into dist, which is embedded and committed, so that
// building the server needs no Node. They request only these addresses and the protocol below v2/, by relative
// addresses.
package web

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/identity"
	"github.com/tutti-server/tutti/internal/inspect"
	"github.com/tutti-server/tutti/internal/server/sites"
	"github.com/tutti-server/tutti/internal/tracing"
)

// Settings configures a Server. Overview is required.
type Settings struct {
	// Inspector reads stored traces. Optional: nil when no traces are stored.
	Inspector inspect.Inspector
	// OTLP writes a trace as OTLP JSON. Optional.
	OTLP func(context.Context, *tracing.Record) ([]byte, error)
	// Links make the addresses of a trace in other programs.
	Links    []inspect.LinkTemplate
	Overview inspect.Overview
	// Executions counts the batches that models executed in an interval; see overview.Window. Optional.
	Executions func(fromUs, toUs int64, models []string) (from, to int64, executed uint64, ok bool)
	// Captures reads and changes captures. Optional: nil when no tensors are stored.
	Captures inspect.Captures
	// Details describe single models. Optional.
	Details inspect.Details
	// History reads the figures of the past. Optional: nil when they are not stored.
	History inspect.History
	// Lifecycle loads and unloads models. Optional: nil when the dashboard may not.
	Lifecycle infer.Lifecycle
	// Examples returns examples of a model's inputs. Optional.
	Examples func(model string) ([]inspect.ExampleView, error)
	// Token authorizes changes. When it is empty, every change is refused.
	Token string
	// Restricted lists the protected categories of the API, each with the header that opens it.
	Restricted []infer.Restriction
	// Guard decides who may use what, and writes the audit log. With an auth file the token is one identity among others. Nil: no file.
	Guard *identity.Guard
	// Sites decides by which names browsers may reach the dashboard, and which pages may use it. Nil: by addresses and localhost.
	Sites *sites.Policy
	// Pages serves everything below the mount point except api/. Optional.
	Pages http.Handler

	_ struct{}
}

// Server handles requests below Mount, with their full paths. It is safe for concurrent use. Close ends its event
// streams.
type Server struct {
	set     Settings
	limited infer.Restrictions
	routes  *http.ServeMux
	streams atomic.Int32
	models  modelFeed
	closing context.Context //nolint:containedctx // ends the streams, which last longer than any request
	stop    context.CancelFunc
}

// Mount is the path below which the server is mounted.
const Mount = "/ui/"

const maxBody = 64 << 10 // bounds the size of a request body

// New returns a server. The caller must close it.
func New(set Settings) *Server {
	s := &Server{set: set, limited: infer.Restrict(set.Restricted), routes: http.NewServeMux()}
	s.closing, s.stop = context.WithCancel(context.Background())
	s.addRoutes()
	s.routes.HandleFunc("GET "+Mount+"api/events", s.events)
	s.routes.HandleFunc(Mount+"api/", func(w http.ResponseWriter, _ *http.Request) {
		writeError(w, status.Errorf(status.NotFound, "there is no such address"))
	})
	// A relative address keeps a path prefix before the mount point; http.Redirect would make it absolute.
	s.routes.HandleFunc("GET "+strings.TrimSuffix(Mount, "/"), func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", strings.TrimPrefix(Mount, "/"))
		w.WriteHeader(http.StatusTemporaryRedirect)
	})
	if set.Pages != nil {
		s.routes.Handle(Mount, set.Pages)
	}
	return s
}

// Close ends the event streams. It may be called twice.
func (s *Server) Close() { s.stop() }

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	if err := s.set.Sites.Page(r); err != nil {
		s.refuse(w, r, nil, forbidden(err.Error()))
		return
	}
	s.routes.ServeHTTP(w, r)
}

// route adds the endpoint of a method and a path below api/. It checks the caller's rights, calls f and writes the response. a is
// the category that restrictions may protect; a secret endpoint needs the token, or with an auth file a role with more than the dashboard.
func (s *Server) route(pattern string, a infer.API, secret bool, f endpoint) {
	method, path, _ := strings.Cut(pattern, " ")
	s.routes.HandleFunc(method+" "+Mount+"api/"+path, func(w http.ResponseWriter, r *http.Request) {
		who, err := s.admit(r, a, secret)
		if err != nil {
			s.refuse(w, r, who, err)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		v, err := f(r)
		if method != http.MethodGet {
			s.set.Guard.Record(who, eventOf(r), err)
		}
		if err != nil {
			writeError(w, err)
			return
		}
		switch v := v.(type) {
		case *file:
			w.Header().Set("Content-Type", v.kind)
			w.Header().Set("Content-Disposition", `attachment; filename="`+v.name+`"`)
			if v.write(w) != nil {
				panic(http.ErrAbortHandler) // aborts the connection, so that the client does not save a partial file
			}
		case plain:
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			_, _ = w.Write([]byte(v)) // an error means that the client has disconnected
		default:
			writePacked(w, r, http.StatusOK, v)
		}
	})
}

func writeError(w http.ResponseWriter, err error) {
	writeJSON(w, status.CodeOf(err).HTTP(), map[string]string{"error": err.Error()})
}

// writeJSON responds with v.
func writeJSON(w http.ResponseWriter, code int, v any) { writePacked(w, nil, code, v) }

// writePacked responds with v, compressed if it is large and the client accepts that. r may be nil.
func writePacked(w http.ResponseWriter, r *http.Request, code int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		b, code = []byte(`{"error":"the response cannot be encoded as JSON"}`), http.StatusInternalServerError
	}
	w.Header().Set("Content-Type", "application/json")
	if r == nil || len(b) < minCompressed {
		w.WriteHeader(code)
		_, _ = w.Write(b) // a client that has gone gets nothing
		return
	}
	out, p := pack(w, r)
	w.WriteHeader(code)
	_, _ = out.Write(b)
	_ = p.close()
}

const (
	maxStreams     = 64               // bounds the concurrent event streams
	maxTraceEvents = 20               // bounds the traces sent per update
	updateInterval = time.Second      // the time between two updates of a page
	writeTimeout   = 10 * time.Second // ends a stream whose client stops reading
)

// events sends updates to a page until the client disconnects or the server closes.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	defer s.streams.Add(-1)
	if s.streams.Add(1) > maxStreams {
		writeError(w, status.Reasonf(status.LimitReached, "too many event streams, at most %d may be open", maxStreams))
		return
	}
	if who, err := s.admit(r, infer.APIMetadata, false); err != nil {
		s.refuse(w, r, who, err)
		return
	}
	f := &feed{c: http.NewResponseController(w)}
	// A stream outlives the server's read timeout. A writer without deadlines returns an error, which is ignored.
	_ = f.c.SetReadDeadline(time.Time{})
	w.Header().Set("Content-Type", "text/event-stream")
	f.w, f.p = pack(w, r)
	defer func() { _ = f.p.close() }()
	w.WriteHeader(http.StatusOK)
	if s.set.Inspector != nil {
		if list, err := s.set.Inspector.Traces(&inspect.TraceQuery{Limit: 1}); err == nil {
			f.newest = list.Newest
		}
	}
	tick := time.NewTicker(updateInterval)
	defer tick.Stop()
	for s.update(f, r) {
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return
		case <-s.closing.Done():
			return
		}
	}
}

// feed is a stream of server-sent events to one client.
type feed struct {
	w      io.Writer
	p      *packer // nil for a client that takes no compressed events
	c      *http.ResponseController
	newest uint64
	turn   uint64 // of the models
	buf    []byte
	models []byte
	broken bool
}

// update sends the current state and the new traces. It reports whether the client still reads.
func (s *Server) update(f *feed, r *http.Request) bool {
	_ = f.c.SetWriteDeadline(time.Now().Add(writeTimeout))
	if !s.still(r, infer.APIMetadata) {
		return false // the token has expired, or the auth file has changed
	}
	f.send("server", s.set.Overview.Server())
	if s.still(r, infer.APIStatistics) {
		var event string
		if event, f.models, f.turn = s.models.since(f.turn, s.set.Overview, f.models[:0]); event != "" {
			f.write(event, f.models)
		}
	}
	if s.set.Inspector != nil && s.still(r, infer.APITrace) {
		if list, err := s.set.Inspector.Traces(&inspect.TraceQuery{After: f.newest, Limit: maxTraceEvents}); err == nil {
			f.newest = list.Newest
			for i := range slices.Backward(list.Traces) { // oldest first
				f.send("trace", &list.Traces[i])
			}
		}
	}
	return !f.broken && f.p.flush() == nil && f.c.Flush() == nil
}

// send writes one event.
func (f *feed) send(name string, v any) {
	if b, err := json.Marshal(v); err == nil {
		f.write(name, b)
	}
}

// write writes one event with encoded data. After a failed write it does nothing.
func (f *feed) write(name string, b []byte) {
	if f.broken {
		return
	}
	f.buf = append(append(f.buf[:0], "event: "...), name...)
	f.buf = append(append(append(f.buf, "\ndata: "...), b...), "\n\n"...)
	_, err := f.w.Write(f.buf)
	f.broken = err != nil
}
