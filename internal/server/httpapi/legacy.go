package httpapi

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
)

// The API before v2 is that of the TensorRT Inference Server, releases 1.0 to 1.15:
// GET /api/health/live and /api/health/ready answer 200 or 400, GET /api/status and
// /api/status/MODEL with the ServerStatus message as protobuf text. Each answer says
// how the request went in the header NV-Status, a RequestStatus message in one line.
// What that server counted per batch size and per endpoint is left out, as protobuf
// leaves out what is zero, and ?format= has no choice but text.
const legacyStatus = "NV-Status"

var legacyType = []string{"application/octet-stream"}

// legacyLive answers 200 while the server lives.
func (s *Server) legacyLive(w http.ResponseWriter, _ *http.Request, _ target) {
	s.legacyHealth(w, s.isLive == nil || s.isLive())
}

// legacyReady answers 200 while everything that should serve does.
func (s *Server) legacyReady(w http.ResponseWriter, _ *http.Request, _ target) {
	s.legacyHealth(w, (s.isLive == nil || s.isLive()) && s.catalog.Ready())
}

func (s *Server) legacyHealth(w http.ResponseWriter, ok bool) {
	s.legacyHeader(w, nil)
	if !ok || s.exiting.Load() {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	w.WriteHeader(http.StatusOK)
}

// legacyHeader sets the header that says how a request went.
func (s *Server) legacyHeader(w http.ResponseWriter, err error) {
	b := append([]byte("code: "), legacyCode(err)...)
	if err != nil {
		b = appendQuoted(append(b, " msg: "...), status.Text(err))
	}
	b = appendQuoted(append(b, " server_id: "...), s.about.Name)
	b = strconv.AppendUint(append(b, " request_id: "...), s.legacyIDs.Add(1), 10)
	w.Header()[legacyStatus] = []string{string(b)}
}

// legacyCode is an error's name in the RequestStatusCode enumeration.
func legacyCode(err error) string {
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

// legacyServerStatus answers with the state of the server and of one model or all.
func (s *Server) legacyServerStatus(w http.ResponseWriter, r *http.Request, t target) {
	b, err := s.appendLegacy(r, t.model)
	s.legacyHeader(w, err)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	w.Header()["Content-Type"] = legacyType
	// A client that is gone by now gets nothing.
	_, _ = w.Write(b)
}

func (s *Server) appendLegacy(r *http.Request, model string) ([]byte, error) {
	if format := r.URL.Query().Get("format"); format != "" && format != "text" {
		return nil, status.Errorf(status.Unsupported, "status format '%s' is not supported, expected 'text'", format)
	}
	entries := s.legacyEntries(model)
	if model != "" && len(entries) == 0 {
		return nil, status.Errorf(status.InvalidArg, "no status available for unknown model '%s'", model)
	}
	p := &legacyPrinter{
		config: s.admits(infer.APIModelConfig, r.Header),
		stats:  s.admits(infer.APIStatistics, r.Header),
	}
	p.text("id", s.about.Name)
	p.text("version", s.about.Version)
	p.number("uptime_ns", uint64(time.Since(s.since)))
	s.legacyModels(p, entries)
	p.word("ready_state", s.legacyState())
	return p.b, nil
}

// legacyPrinter knows what the request may see: the status has in it what other
// endpoints show, and these may be restricted.
type legacyPrinter struct {
	textPrinter
	config, stats bool
}

func (s *Server) legacyState() string {
	switch {
	case s.exiting.Load():
		return "SERVER_EXITING"
	case s.catalog.Ready():
		return "SERVER_READY"
	default:
		return "SERVER_INITIALIZING"
	}
}

// legacyEntries lists the versions of one model or all; without a repository to ask,
// those that serve. They come sorted by model and version.
func (s *Server) legacyEntries(model string) []infer.Entry {
	var entries []infer.Entry
	if s.lifecycle != nil {
		entries = s.lifecycle.Index(false)
	} else if all, err := s.catalog.Statistics("", 0); err == nil {
		for i := range all {
			entries = append(entries, infer.Entry{Name: all[i].Name, Version: all[i].Version, State: infer.Ready})
		}
	}
	entries = slices.DeleteFunc(slices.Clone(entries), func(e infer.Entry) bool { return model != "" && e.Name != model })
	slices.SortStableFunc(entries, func(a, b infer.Entry) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(legacyVersion(a), legacyVersion(b)))
	})
	return entries
}

func legacyVersion(e infer.Entry) int64 {
	v, _ := strconv.ParseInt(e.Version, 10, 64)
	return v
}

func (s *Server) legacyModels(p *legacyPrinter, entries []infer.Entry) {
	for len(entries) > 0 {
		n := 1
		for n < len(entries) && entries[n].Name == entries[0].Name {
			n++
		}
		p.beginEntry("model_status", string(appendQuoted(nil, entries[0].Name)))
		s.legacyModel(p, entries[:n])
		p.endEntry()
		entries = entries[n:]
	}
}

// legacyModel prints the configuration of the newest version that has one, and the
// state of each.
func (s *Server) legacyModel(p *legacyPrinter, versions []infer.Entry) {
	for _, v := range slices.Backward(versions) {
		if v.State != infer.Ready || !p.config {
			continue
		}
		if cfg, err := s.catalog.Config(v.Name, legacyVersion(v)); err == nil {
			p.message("config", cfg.ProtoReflect())
			break
		}
	}
	for _, v := range versions {
		if v.Version == "" {
			continue
		}
		p.beginEntry("version_status", v.Version)
		s.legacyModelVersion(p, v)
		p.endEntry()
	}
}

func (s *Server) legacyModelVersion(p *legacyPrinter, v infer.Entry) {
	state := string(v.State)
	if state == "" {
		state = "UNKNOWN"
	}
	p.word("ready_state", "MODEL_"+state)
	if v.State == infer.Ready && p.stats {
		if all, err := s.catalog.Statistics(v.Name, legacyVersion(v)); err == nil && len(all) == 1 {
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
