package httpapi

import (
	"net/http"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/tracing"
)

// traceSettings is the trace settings in the protocol's order of members. Those with
// pointers belong to traces written to a file, or exported.
type traceSettings struct {
	Level     []string `json:"trace_level"`
	Rate      string   `json:"trace_rate"`
	Count     string   `json:"trace_count"`
	Frequency *string  `json:"log_frequency,omitempty"`
	File      *string  `json:"trace_file,omitempty"`
	Mode      string   `json:"trace_mode"`
	*tracing.Exporter
}

// traceSetting changes the trace settings of all models or of one on POST, all of
// them or none, and answers with those in force.
func (s *Server) traceSetting(w http.ResponseWriter, r *http.Request, t target) {
	if s.tracer == nil {
		writeError(w, lacks("trace setting"))
		return
	}
	err := s.traceModel(t.model)
	if err == nil && r.Method == post {
		err = s.updateTrace(w, r, t.model)
	}
	if err != nil {
		writeError(w, err)
		return
	}
	writeJSON(w, showTrace(s.tracer.Settings(t.model)))
}

// traceModel refuses a model that is not there; whether it serves does not matter.
func (s *Server) traceModel(model string) error {
	if model == "" {
		return nil
	}
	err := s.catalog.ModelReady(model, 0)
	if err == nil || status.CodeOf(err) == status.Unavailable {
		return nil
	}
	return status.Errorf(status.InvalidArg, "Request for unknown model : %s", model)
}

func showTrace(set tracing.Settings) traceSettings {
	shown := traceSettings{Level: list(set.Level), Rate: set.Rate, Count: set.Count, Mode: set.Mode, Exporter: set.Exporter}
	if set.Mode == tracing.ModeTriton {
		shown.Frequency, shown.File = &set.LogFrequency, &set.File
	}
	return shown
}

func (s *Server) updateTrace(w http.ResponseWriter, r *http.Request, model string) error {
	changes := map[string][]string{}
	err := s.control(w, r, false, func(x *exchange, key string) (err error) {
		switch key {
		case "trace_file":
			changes[key] = nil // is refused, whatever it says
			return x.p.skip()
		case "trace_level", "trace_rate", "trace_count", "log_frequency":
			changes[key], err = x.textOrList(key)
			return err
		default:
			return x.p.skip()
		}
	})
	if err != nil {
		return err
	}
	return s.tracer.Update(model, changes)
}

// textOrList reads a string, a list of strings, or null for none.
func (x *exchange) textOrList(field string) (values []string, err error) {
	if is, err := x.null(); is || err != nil {
		return nil, err
	}
	if x.p.peek() != '[' {
		text, err := x.text(field)
		return []string{string(text)}, err
	}
	more, err := x.p.enter(']')
	for ; more && err == nil; more, err = x.p.more(']') {
		text, err := x.text(field)
		if err != nil {
			return nil, err
		}
		values = append(values, string(text))
	}
	return values, err
}
