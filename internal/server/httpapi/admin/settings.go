package admin

import (
	"math"
	"net/http"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/logs"
	"github.com/tutti-server/tutti/internal/server/httpapi/jsonwire"
	"github.com/tutti-server/tutti/internal/server/httpapi/transport"
	"github.com/tutti-server/tutti/internal/tracing"
)

// traceSettings is the trace settings with the members in the protocol's order. Frequency and File exist in the mode that writes
// a file, Exporter in the one that exports.
type traceSettings struct {
	Level     []string `json:"trace_level"`
	Rate      string   `json:"trace_rate"`
	Count     string   `json:"trace_count"`
	Frequency *string  `json:"log_frequency,omitempty"`
	File      *string  `json:"trace_file,omitempty"`
	Mode      string   `json:"trace_mode"`
	*tracing.Exporter
}

// TraceSetting responds with the trace settings of all models or of one. POST changes them first, all or none.
func (s *Service) TraceSetting(w http.ResponseWriter, r *http.Request, p transport.Path) (any, error) {
	if s.set.Tracer == nil {
		return nil, transport.NotSupported("trace setting")
	}
	err := s.checkTraceModel(p.Model)
	if err == nil && r.Method == http.MethodPost {
		err = s.updateTrace(w, r, p.Model)
	}
	if err != nil {
		return nil, err
	}
	set := s.set.Tracer.Settings(p.Model)
	shown := traceSettings{Level: list(set.Level), Rate: set.Rate, Count: set.Count, Mode: set.Mode, Exporter: set.Exporter}
	if set.Mode == tracing.ModeTriton {
		shown.Frequency, shown.File = &set.LogFrequency, &set.File
	}
	return shown, nil
}

// checkTraceModel returns an error for an unknown model. The model need not be ready.
func (s *Service) checkTraceModel(model string) error {
	if model == "" {
		return nil
	}
	err := s.set.Catalog.ModelReady(model, 0)
	if err == nil || status.CodeOf(err) == status.Unavailable {
		return nil
	}
	return status.Errorf(status.InvalidArg, "Request for unknown model : %s", model)
}

func (s *Service) updateTrace(w http.ResponseWriter, r *http.Request, model string) error {
	changes := map[string][]string{}
	err := s.readMembers(w, r, false, func(p *jsonwire.Parser, name string) (err error) {
		switch name {
		case "trace_file":
			changes[name] = nil // which Update rejects
			return p.Skip()
		case "trace_level", "trace_rate", "trace_count", "log_frequency":
			changes[name], err = p.TextOrList(name)
			return err
		default:
			return p.Skip()
		}
	})
	if err != nil {
		return err
	}
	return s.set.Tracer.Update(model, changes)
}

// logSettings is the log settings with the members in the protocol's order.
type logSettings struct {
	File    string `json:"log_file"`
	Info    bool   `json:"log_info"`
	Warning bool   `json:"log_warning"`
	Error   bool   `json:"log_error"`
	Verbose uint32 `json:"log_verbose_level"`
	Format  string `json:"log_format"`
}

// Logging responds with the log settings. POST changes them first, all or none.
func (s *Service) Logging(w http.ResponseWriter, r *http.Request, _ transport.Path) (any, error) {
	if s.set.Logs == nil {
		return nil, transport.NotSupported("logging")
	}
	if r.Method == http.MethodPost {
		if err := s.updateLog(w, r); err != nil {
			return nil, err
		}
	}
	set := s.set.Logs.Settings()
	return logSettings{set.File, set.Info, set.Warning, set.Error, set.Verbose, set.Format}, nil
}

func (s *Service) updateLog(w http.ResponseWriter, r *http.Request) error {
	var u logs.Update
	if err := s.readMembers(w, r, false, func(p *jsonwire.Parser, name string) error { return readLogSetting(p, &u, name) }); err != nil {
		return err
	}
	err := s.set.Logs.Update(u)
	if u.Format != nil && err != nil && status.CodeOf(err) == status.InvalidArg {
		// Only the format can be invalid. Over HTTP Triton's error for it has other words and another status.
		return status.Errorf(status.Unavailable, "invalid argument for --log_format, got: %s", *u.Format)
	}
	return err
}

// readLogSetting reads one setting. null leaves it unchanged.
func readLogSetting(p *jsonwire.Parser, u *logs.Update, name string) error {
	if is, err := p.Null(); is || err != nil {
		return err
	}
	switch name {
	case "log_file":
		u.File = new(string)
		return p.Skip()
	case "log_info":
		return readSwitch(p, &u.Info, name)
	case "log_warning":
		return readSwitch(p, &u.Warning, name)
	case "log_error":
		return readSwitch(p, &u.Error, name)
	case "log_verbose_level":
		n, err := p.Unsigned(name)
		if err == nil && n > math.MaxUint32 {
			err = jsonwire.Unable(name, jsonwire.NotUnsigned)
		}
		level := uint32(n)
		u.Verbose = &level
		return err
	case "log_format":
		text, err := p.Text(name)
		format := string(text)
		u.Format = &format
		return err
	default:
		return p.Skip()
	}
}

func readSwitch(p *jsonwire.Parser, to **bool, name string) error {
	on, err := p.Bool(name)
	*to = &on
	return err
}
