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
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/identity"
	"github.com/tutti-server/tutti/internal/server/httpapi/transport"
)

// Service serves the old API. Its methods are handlers and safe for concurrent use.
type Service struct {
	*transport.Shared
	start    time.Time
	requests atomic.Uint64
}

// New returns a Service. The server's uptime counts from now.
func New(s *transport.Shared) *Service { return &Service{Shared: s, start: time.Now()} }

// Health returns a handler that responds 200 while the server is live and, for ready, every model that should be ready is.
func (s *Service) Health(ready bool) transport.Handler {
	return func(w http.ResponseWriter, _ *http.Request, _ transport.Path) {
		s.setStatus(w, nil)
		code := http.StatusOK
		if s.Exiting.Load() || !s.Live() || ready && !s.Catalog.Ready() {
			code = http.StatusBadRequest
		}
		w.WriteHeader(code)
	}
}

// codeNames has the names of error codes in the RequestStatusCode enumeration. Other codes are UNKNOWN.
var codeNames = map[status.Code]string{
	status.Internal: "INTERNAL", status.NotFound: "NOT_FOUND", status.InvalidArg: "INVALID_ARG", status.Unavailable: "UNAVAILABLE",
	status.Unsupported: "UNSUPPORTED", status.AlreadyExists: "ALREADY_EXISTS",
}

// setStatus sets the header with the outcome of the request.
func (s *Service) setStatus(w http.ResponseWriter, err error) {
	code := "SUCCESS"
	if err != nil {
		code = cmp.Or(codeNames[status.CodeOf(err)], "UNKNOWN") + " msg: " + quote(status.Text(err))
	}
	w.Header()["NV-Status"] = []string{fmt.Sprintf("code: %s server_id: %s request_id: %d", code, quote(s.Name), s.requests.Add(1))}
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
	who := identity.From(r.Context())
	entries := slices.DeleteFunc(s.entries(model), func(e infer.Entry) bool { return !who.Sees(identity.GroupOf(infer.APIMetadata), e.Name) })
	if model != "" && len(entries) == 0 {
		return nil, status.Errorf(status.InvalidArg, "no status available for unknown model '%s'", model)
	}
	may := func(a infer.API) func(string) bool {
		return func(model string) bool { return s.Admits(a, r.Header) && who.Sees(identity.GroupOf(a), model) }
	}
	p := &printer{config: may(infer.APIModelConfig), stats: may(infer.APIStatistics)}
	p.text("id", s.Name)
	p.text("version", s.Version)
	p.number("uptime_ns", uint64(time.Since(s.start)))
	for len(entries) > 0 {
		n := slices.IndexFunc(entries, func(e infer.Entry) bool { return e.Name != entries[0].Name })
		if n < 0 {
			n = len(entries)
		}
		p.entry("model_status", quote(entries[0].Name), func() { s.printModel(p, entries[:n]) })
		entries = entries[n:]
	}
	state := "SERVER_INITIALIZING"
	switch {
	case s.Exiting.Load():
		state = "SERVER_EXITING"
	case s.Catalog.Ready():
		state = "SERVER_READY"
	}
	p.line("ready_state: ", state)
	return p.b, nil
}

// entries lists the versions of one model or all, sorted by model and version. Without a Lifecycle it lists ready versions only.
func (s *Service) entries(model string) []infer.Entry {
	var entries []infer.Entry
	if s.Lifecycle != nil {
		entries = s.Lifecycle.Index(false)
	} else if all, err := s.Catalog.Statistics("", 0); err == nil {
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

// printModel prints the configuration of the newest ready version, and the state of each version.
func (s *Service) printModel(p *printer, versions []infer.Entry) {
	for _, v := range slices.Backward(versions) {
		if v.State != infer.Ready || !p.config(v.Name) {
			continue
		}
		if cfg, err := s.Catalog.Config(v.Name, versionNumber(v)); err == nil {
			p.message("config", cfg.ProtoReflect())
			break
		}
	}
	for _, v := range versions {
		if v.Version != "" {
			p.entry("version_status", v.Version, func() { s.printVersion(p, v) })
		}
	}
}

func (s *Service) printVersion(p *printer, v infer.Entry) {
	p.line("ready_state: MODEL_", cmp.Or(string(v.State), "UNKNOWN"))
	if v.State == infer.Ready && p.stats(v.Name) {
		if all, err := s.Catalog.Statistics(v.Name, versionNumber(v)); err == nil && len(all) == 1 {
			p.number("model_execution_count", all[0].ExecutionCount)
			p.number("model_inference_count", all[0].InferenceCount)
			p.number("last_inference_timestamp_milliseconds", all[0].LastInference)
		}
	}
	if v.Reason != "" {
		p.block("ready_state_reason", func() { p.text("message", v.Reason) })
	}
}

// printer prints protobuf text as DebugString of the C++ library does: two spaces per level, one field per line, no zero
// values. The Go library varies its white space on purpose, which would break scripts that search for a line.
type printer struct {
	b     []byte
	depth int
	// config and stats report whether the request may see these parts, which other, perhaps restricted endpoints show as well.
	config, stats func(model string) bool
}

func (p *printer) line(parts ...string) {
	for range p.depth {
		p.b = append(p.b, ' ', ' ')
	}
	for _, part := range parts {
		p.b = append(p.b, part...)
	}
	p.b = append(p.b, '\n')
}

// block prints a message with the fields that content prints.
func (p *printer) block(field string, content func()) {
	p.line(field, " {")
	p.depth++
	content()
	p.depth--
	p.line("}")
}

// entry prints an entry of a map whose value is a message. key must be in printed form.
func (p *printer) entry(field, key string, content func()) {
	p.block(field, func() {
		p.line("key: ", key)
		p.block("value", content)
	})
}

func (p *printer) text(field, value string) {
	if value != "" {
		p.line(field, ": ", quote(value))
	}
}

func (p *printer) number(field string, value uint64) {
	if value != 0 {
		p.line(field, ": ", strconv.FormatUint(value, 10))
	}
}

func (p *printer) message(field string, m protoreflect.Message) {
	var set []protoreflect.FieldDescriptor
	for f := range m.Range {
		set = append(set, f)
	}
	slices.SortFunc(set, func(a, b protoreflect.FieldDescriptor) int { return cmp.Compare(a.Number(), b.Number()) })
	p.block(field, func() {
		for _, f := range set {
			p.value(f, m.Get(f))
		}
	})
}

func (p *printer) value(f protoreflect.FieldDescriptor, v protoreflect.Value) {
	name := string(f.Name())
	switch {
	case f.IsMap():
		var keys []protoreflect.MapKey
		for k := range v.Map().Range {
			keys = append(keys, k)
		}
		slices.SortFunc(keys, compareKeys)
		for _, k := range keys {
			p.block(name, func() {
				p.single("key", f.MapKey(), k.Value())
				p.single("value", f.MapValue(), v.Map().Get(k))
			})
		}
	case f.IsList():
		for i := range v.List().Len() {
			p.single(name, f, v.List().Get(i))
		}
	default:
		p.single(name, f, v)
	}
}

// compareKeys compares numbers by value and other keys by their text.
func compareKeys(a, b protoreflect.MapKey) int {
	x, errX := strconv.ParseUint(a.String(), 10, 64)
	y, errY := strconv.ParseUint(b.String(), 10, 64)
	if errX != nil || errY != nil {
		x, y = 0, 0
	}
	return cmp.Or(cmp.Compare(x, y), cmp.Compare(a.String(), b.String()))
}

func (p *printer) single(name string, f protoreflect.FieldDescriptor, v protoreflect.Value) {
	if f.Message() != nil {
		p.message(name, v.Message())
		return
	}
	text := v.String()
	switch f.Kind() {
	case protoreflect.StringKind:
		text = quote(text)
	case protoreflect.BytesKind:
		text = quote(string(v.Bytes()))
	case protoreflect.EnumKind: // an unknown value prints its number
		if e := f.Enum().Values().ByNumber(v.Enum()); e != nil {
			text = string(e.Name())
		}
	case protoreflect.FloatKind:
		text = strconv.FormatFloat(v.Float(), 'g', -1, 32)
	case protoreflect.DoubleKind:
		text = strconv.FormatFloat(v.Float(), 'g', -1, 64)
	}
	p.line(name, ": ", text)
}

// quote returns s as a string of protobuf text, with octal escapes: "é" is "\303\251".
func quote(s string) string {
	b := []byte{'"'}
	for i := range len(s) {
		switch c, at := s[i], strings.IndexByte("\n\r\t\"'\\", s[i]); {
		case at >= 0:
			b = append(b, '\\', "nrt\"'\\"[at])
		case c < ' ' || c > '~':
			b = append(b, '\\', '0'+c>>6, '0'+c>>3&7, '0'+c&7)
		default:
			b = append(b, c)
		}
	}
	return string(append(b, '"'))
}
