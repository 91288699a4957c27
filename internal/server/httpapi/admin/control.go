package admin

import (
	"encoding/base64"
	"math"
	"net/http"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/identity"
	"github.com/tutti-server/tutti/internal/logs"
	"github.com/tutti-server/tutti/internal/server/httpapi/jsonwire"
	"github.com/tutti-server/tutti/internal/server/httpapi/transport"
	"github.com/tutti-server/tutti/internal/shm"
	"github.com/tutti-server/tutti/internal/tracing"
)

// RepositoryIndex lists the models of all repositories. As in Triton, the repository in the path does not matter.
func (s *Service) RepositoryIndex(w http.ResponseWriter, r *http.Request, _ transport.Path) (any, error) {
	if s.Lifecycle == nil {
		return nil, transport.NotSupported("repository index")
	}
	ready := false
	err := s.readMembers(w, r, true, func(p *jsonwire.Parser, name string) (err error) {
		if name != "ready" {
			return p.Skip()
		}
		if c := p.Peek(); c != 't' && c != 'f' {
			return status.Errorf(status.InvalidArg, "Invalid value for 'ready': expected a boolean")
		}
		ready, err = p.Bool("ready")
		return err
	})
	if err != nil {
		return nil, err
	}
	who, shown := identity.From(r.Context()), s.Lifecycle.Index(ready)
	if who != nil {
		shown = slices.DeleteFunc(slices.Clone(shown), func(e infer.Entry) bool { return !who.Sees(identity.GroupOf(infer.APIModelRepository), e.Name) })
	}
	return list(shown), nil
}

// LoadModel loads a model and responds when it is ready, or with the reason why it is not.
func (s *Service) LoadModel(w http.ResponseWriter, r *http.Request, p transport.Path) (any, error) {
	var o infer.LoadOptions
	return nil, s.changeModel(w, r, p, "model load",
		func(p *jsonwire.Parser, name string) error { return readLoadParameter(p, &o, name) },
		func() error {
			if o.Config != "" || len(o.Files) > 0 {
				if err := identity.From(r.Context()).MayReach("a load with a configuration or files"); err != nil {
					return err
				}
			}
			return s.Lifecycle.Load(r.Context(), p.Model, o)
		})
}

// UnloadModel unloads a model. It responds when the model accepts no more requests.
func (s *Service) UnloadModel(w http.ResponseWriter, r *http.Request, p transport.Path) (any, error) {
	dependents := false
	return nil, s.changeModel(w, r, p, "model unload",
		func(p *jsonwire.Parser, name string) (err error) {
			if name != "unload_dependents" {
				return p.Skip()
			}
			dependents, err = p.Bool(name)
			return err
		},
		func() error {
			if dependents {
				if err := identity.From(r.Context()).MayReach("an unload of dependents"); err != nil {
					return err
				}
			}
			return s.Lifecycle.Unload(r.Context(), p.Model, dependents)
		})
}

// changeModel reads the parameters of a load or unload with parameter, then calls change.
func (s *Service) changeModel(w http.ResponseWriter, r *http.Request, p transport.Path, what string,
	parameter func(p *jsonwire.Parser, name string) error, change func() error,
) error {
	if s.Lifecycle == nil {
		return transport.NotSupported(what)
	}
	if p.Name != "" {
		return status.Errorf(status.Unsupported, "'repository_name' specification is not supported")
	}
	err := s.readMembers(w, r, true, func(p *jsonwire.Parser, name string) error {
		if name != "parameters" {
			return p.Skip()
		}
		return p.Object(func(name []byte) error { return parameter(p, string(name)) })
	})
	if err == nil {
		err = change()
	}
	return err
}

// readLoadParameter reads a model configuration or one of the model's files, in base64.
func readLoadParameter(p *jsonwire.Parser, o *infer.LoadOptions, name string) error {
	path, isFile := strings.CutPrefix(name, "file:") // as in "file:1/model.onnx"
	text, err := p.Text(name)
	switch {
	case err != nil:
		return err
	case name == "config":
		o.Config = string(text)
		return nil
	case !isFile:
		return status.Errorf(status.Internal, "unexpected error on creating Triton parameter")
	}
	content := make([]byte, base64.StdEncoding.DecodedLen(len(text)))
	n, err := base64.StdEncoding.Decode(content, text)
	if err != nil {
		return status.Errorf(status.InvalidArg, "unable to decode '%s': expected base64, %w", name, err)
	}
	if o.Files == nil {
		o.Files = make(map[string][]byte)
	}
	o.Files[path] = content[:n]
	return nil
}

// region is a region with the members in the protocol's order. Key and Offset are those of a POSIX region, Device that of a device
// region.
type region struct {
	Name   string  `json:"name"`
	Key    *string `json:"key,omitempty"`
	Offset *uint64 `json:"offset,omitempty"`
	Device *int64  `json:"device_id,omitempty"`
	Size   uint64  `json:"byte_size"`
}

// RegionStatus returns a handler that responds with the regions of a kind, or the one in the path.
func (s *Service) RegionStatus(kind shm.Kind) transport.Handler {
	return JSON(func(_ http.ResponseWriter, _ *http.Request, p transport.Path) (any, error) {
		regions, err := s.Regions.Status(kind, p.Name)
		shown := make([]region, len(regions))
		for i, r := range regions {
			if shown[i] = (region{Name: r.Name, Size: r.Size}); kind == shm.CUDA {
				shown[i].Device = &r.Device
			} else {
				shown[i].Key, shown[i].Offset = &r.Key, &r.Offset
			}
		}
		return shown, err
	})
}

// RegionUnregister returns a handler that unregisters the region of a kind in the path, or all.
func (s *Service) RegionUnregister(kind shm.Kind) transport.Handler {
	return JSON(func(_ http.ResponseWriter, _ *http.Request, p transport.Path) (any, error) {
		return nil, s.Regions.Unregister(kind, p.Name)
	})
}

// RegionRegister returns a handler that registers a region of a kind.
func (s *Service) RegionRegister(kind shm.Kind) transport.Handler {
	return JSON(func(w http.ResponseWriter, r *http.Request, p transport.Path) (any, error) {
		g, err := s.readRegistration(w, r, kind, p.Name)
		switch {
		case err != nil:
			return nil, err
		case kind == shm.CUDA:
			return nil, s.Regions.RegisterCUDA(p.Name, g.handle, g.Device, g.Size)
		default:
			return nil, s.Regions.RegisterSystem(p.Name, g.Key, g.Offset, g.Size)
		}
	})
}

// registration is the content of a register request. A device region has a handle.
type registration struct {
	shm.Region
	handle []byte
}

// readRegistration reads a register request. While client regions are disabled it fails whatever the request has.
func (s *Service) readRegistration(w http.ResponseWriter, r *http.Request, kind shm.Kind, name string) (g registration, err error) {
	if err := s.Regions.Check(); err != nil {
		return g, err
	}
	if name == "" {
		return g, status.Errorf(status.InvalidArg, "'region name' is necessary to register %s shared memory region", kind)
	}
	g.Kind = kind
	required := []string{"key", "byte_size"}
	if kind == shm.CUDA {
		required = []string{"raw_handle", "byte_size", "device_id"}
	}
	seen := map[string]bool{}
	err = s.readMembers(w, r, false, func(p *jsonwire.Parser, name string) error {
		seen[name] = true
		return g.readMember(p, name)
	})
	if err != nil {
		return g, err
	}
	for _, field := range required {
		if !seen[field] {
			return g, status.Errorf(status.InvalidArg, "Shared memory register request has no '%s' field", field)
		}
	}
	return g, nil
}

func (g *registration) readMember(p *jsonwire.Parser, name string) (err error) {
	switch system := g.Kind == shm.System; {
	case name == "byte_size":
		g.Size, err = p.Unsigned(name)
	case name == "key" && system:
		var text []byte
		text, err = p.Text(name)
		g.Key = string(text)
	case name == "offset" && system:
		g.Offset, err = p.Unsigned(name)
	case name == "raw_handle" && !system:
		err = g.readHandle(p)
	case name == "device_id" && !system:
		g.Device, err = p.Signed(name)
	default:
		err = p.Skip()
	}
	return err
}

// readHandle reads the handle of device memory: an object with the base64 of its bytes, {"b64":"..."}.
func (g *registration) readHandle(p *jsonwire.Parser) error {
	err := p.Object(func(name []byte) error {
		if string(name) != "b64" {
			return p.Skip()
		}
		text, err := p.Text("b64")
		if err != nil {
			return err
		}
		if g.handle, err = base64.StdEncoding.DecodeString(string(text)); err != nil {
			g.handle = nil // its length is checked below
		}
		return nil
	})
	if err == nil && len(g.handle) != 64 { // a cudaIpcMemHandle_t
		err = status.Errorf(status.InvalidArg, "'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t")
	}
	return err
}

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
	if s.Tracer == nil {
		return nil, transport.NotSupported("trace setting")
	}
	if p.Model != "" { // it need not be ready
		if err := s.Catalog.ModelReady(p.Model, 0); err != nil && status.CodeOf(err) != status.Unavailable {
			return nil, status.Errorf(status.InvalidArg, "Request for unknown model : %s", p.Model)
		}
	}
	if r.Method == http.MethodPost {
		if err := s.updateTrace(w, r, p.Model); err != nil {
			return nil, err
		}
	}
	set := s.Tracer.Settings(p.Model)
	shown := traceSettings{Level: list(set.Level), Rate: set.Rate, Count: set.Count, Mode: set.Mode, Exporter: set.Exporter}
	if set.Mode == tracing.ModeTriton {
		shown.Frequency, shown.File = &set.LogFrequency, &set.File
	}
	return shown, nil
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
	return s.Tracer.Update(model, changes)
}

// Logging responds with the log settings. POST changes them first, all or none.
func (s *Service) Logging(w http.ResponseWriter, r *http.Request, _ transport.Path) (any, error) {
	if s.Logs == nil {
		return nil, transport.NotSupported("logging")
	}
	if r.Method == http.MethodPost {
		if err := s.updateLog(w, r); err != nil {
			return nil, err
		}
	}
	return s.Logs.Settings(), nil
}

func (s *Service) updateLog(w http.ResponseWriter, r *http.Request) error {
	var u logs.Update
	if err := s.readMembers(w, r, false, func(p *jsonwire.Parser, name string) error { return readLogSetting(p, &u, name) }); err != nil {
		return err
	}
	err := s.Logs.Update(u)
	if u.Format != nil && err != nil && status.CodeOf(err) == status.InvalidArg {
		// Only the format can be invalid. Over HTTP Triton's error for it has other words and another status.
		return status.With("INVALID_ARGUMENT", status.Errorf(status.Unavailable, "invalid argument for --log_format, got: %s", *u.Format)) // with Triton's code
	}
	return err
}

// readLogSetting reads one setting. null leaves it unchanged.
func readLogSetting(p *jsonwire.Parser, u *logs.Update, name string) error {
	if is, err := p.Null(); is || err != nil {
		return err
	}
	switches := map[string]**bool{"log_info": &u.Info, "log_warning": &u.Warning, "log_error": &u.Error}
	switch name {
	case "log_file":
		u.File = new(string)
		return p.Skip()
	case "log_info", "log_warning", "log_error":
		on, err := p.Bool(name)
		*switches[name] = &on
		return err
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
