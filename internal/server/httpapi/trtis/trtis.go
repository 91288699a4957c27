// Package trtis serves the HTTP API of the TensorRT Inference Server, releases 1.0 to 1.15, which preceded the v2 protocol:
//
//   - GET /api/health/live and /api/health/ready respond 200 or 400
//   - GET /api/status and /api/status/MODEL respond with a ServerStatus message in protobuf text
//
// Every response has the header NV-Status, a RequestStatus message in one line, for example
// `code: SUCCESS server_id: "tutti" request_id: 7`. The counters of that server by batch size and endpoint are left out, as
// protobuf leaves out zeros, and ?format= accepts text only.
package trtis

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/server/httpapi/transport"
)

const statusHeader = "NV-Status"

// Settings is what a Service is made from.
type Settings struct {
	Catalog infer.Catalog
	// Lifecycle lists the models; nil for the ready ones of Catalog.
	Lifecycle infer.Lifecycle
	// Name and Version are the server's.
	Name, Version string
	// Live and Exiting report the state of the server.
	Live, Exiting func() bool
	// Admits reports whether a request with a header may use a part of the API.
	Admits func(api infer.API, h http.Header) bool
}

// Service serves the old API. Its methods are handlers and safe for concurrent use.
type Service struct {
	set      Settings
	start    time.Time
	requests atomic.Uint64
}

// New returns a Service. The server's uptime counts from now.
func New(set Settings) *Service { return &Service{set: set, start: time.Now()} }

// Live responds 200 while the server is live.
func (s *Service) Live(w http.ResponseWriter, _ *http.Request, _ transport.Path) {
	s.health(w, s.set.Live())
}

// Ready responds 200 while the server is live and every model that should be ready is.
func (s *Service) Ready(w http.ResponseWriter, _ *http.Request, _ transport.Path) {
	s.health(w, s.set.Live() && s.set.Catalog.Ready())
}

func (s *Service) health(w http.ResponseWriter, ok bool) {
	s.setStatus(w, nil)
	if !ok || s.set.Exiting() {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	w.WriteHeader(http.StatusOK)
}

// setStatus sets the header with the outcome of the request.
func (s *Service) setStatus(w http.ResponseWriter, err error) {
	b := append([]byte("code: "), codeName(err)...)
	if err != nil {
		b = appendQuoted(append(b, " msg: "...), status.Text(err))
	}
	b = appendQuoted(append(b, " server_id: "...), s.set.Name)
	b = strconv.AppendUint(append(b, " request_id: "...), s.requests.Add(1), 10)
	w.Header()[statusHeader] = []string{string(b)}
}

// codeName returns the name of an error's code in the RequestStatusCode enumeration.
func codeName(err error) string {
	if err == nil {
		return "SUCCESS"
	}
	switch status.CodeOf(err) {
	case status.Internal:
		return "INTERNAL"
	case status.NotFound:
		return "NOT_FOUND"
	case status.InvalidArg:
		return "INVALID_ARG"
	case status.Unavailable:
		return "UNAVAILABLE"
	case status.Unsupported:
		return "UNSUPPORTED"
	case status.AlreadyExists:
		return "ALREADY_EXISTS"
	default:
		return "UNKNOWN"
	}
}

// Status responds with the state of the server and of one model or all.
func (s *Service) Status(w http.ResponseWriter, r *http.Request, p transport.Path) {
	b, err := s.status(r, p.Model)
	s.setStatus(w, err)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	w.Header()["Content-Type"] = transport.BinaryType
	_, _ = w.Write(b) // the client may have disconnected
}

func (s *Service) status(r *http.Request, model string) ([]byte, error) {
	if format := r.URL.Query().Get("format"); format != "" && format != "text" {
		return nil, status.Errorf(status.Unsupported, "status format '%s' is not supported, expected 'text'", format)
	}
	entries := s.entries(model)
	if model != "" && len(entries) == 0 {
		return nil, status.Errorf(status.InvalidArg, "no status available for unknown model '%s'", model)
	}
	p := &statusPrinter{
		config: s.set.Admits(infer.APIModelConfig, r.Header),
		stats:  s.set.Admits(infer.APIStatistics, r.Header),
	}
	p.text("id", s.set.Name)
	p.text("version", s.set.Version)
	p.number("uptime_ns", uint64(time.Since(s.start)))
	s.printModels(p, entries)
	p.word("ready_state", s.state())
	return p.b, nil
}

// statusPrinter prints a ServerStatus. config and stats report whether the request may see these parts, which other, perhaps
// restricted endpoints show as well.
type statusPrinter struct {
	textPrinter
	config, stats bool
}

func (s *Service) state() string {
	switch {
	case s.set.Exiting():
		return "SERVER_EXITING"
	case s.set.Catalog.Ready():
		return "SERVER_READY"
	default:
		return "SERVER_INITIALIZING"
	}
}

// entries lists the versions of one model or all, sorted by model and version. Without a Lifecycle it lists ready versions only.
func (s *Service) entries(model string) []infer.Entry {
	var entries []infer.Entry
	if s.set.Lifecycle != nil {
		entries = s.set.Lifecycle.Index(false)
	} else if all, err := s.set.Catalog.Statistics("", 0); err == nil {
		for i := range all {
			entries = append(entries, infer.Entry{Name: all[i].Name, Version: all[i].Version, State: infer.Ready})
		}
	}
	entries = slices.DeleteFunc(slices.Clone(entries), func(e infer.Entry) bool { return model != "" && e.Name != model })
	slices.SortStableFunc(entries, func(a, b infer.Entry) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(versionNumber(a), versionNumber(b)))
	})
	return entries
}

func versionNumber(e infer.Entry) int64 {
	v, _ := strconv.ParseInt(e.Version, 10, 64)
	return v
}

func (s *Service) printModels(p *statusPrinter, entries []infer.Entry) {
	for len(entries) > 0 {
		n := 1
		for n < len(entries) && entries[n].Name == entries[0].Name {
			n++
		}
		p.beginEntry("model_status", string(appendQuoted(nil, entries[0].Name)))
		s.printModel(p, entries[:n])
		p.endEntry()
		entries = entries[n:]
	}
}

// printModel prints the configuration of the newest ready version, and the state of each version.
func (s *Service) printModel(p *statusPrinter, versions []infer.Entry) {
	for _, v := range slices.Backward(versions) {
		if v.State != infer.Ready || !p.config {
			continue
		}
		if cfg, err := s.set.Catalog.Config(v.Name, versionNumber(v)); err == nil {
			p.message("config", cfg.ProtoReflect())
			break
		}
	}
	for _, v := range versions {
		if v.Version == "" {
			continue
		}
		p.beginEntry("version_status", v.Version)
		s.printVersion(p, v)
		p.endEntry()
	}
}

func (s *Service) printVersion(p *statusPrinter, v infer.Entry) {
	state := string(v.State)
	if state == "" {
		state = "UNKNOWN"
	}
	p.word("ready_state", "MODEL_"+state)
	if v.State == infer.Ready && p.stats {
		if all, err := s.set.Catalog.Statistics(v.Name, versionNumber(v)); err == nil && len(all) == 1 {
			p.number("model_execution_count", all[0].ExecutionCount)
			p.number("model_inference_count", all[0].InferenceCount)
			p.number("last_inference_timestamp_milliseconds", all[0].LastInference)
		}
	}
	if v.Reason != "" {
		p.begin("ready_state_reason")
		p.text("message", v.Reason)
		p.end()
	}
}
