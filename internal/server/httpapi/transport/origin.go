package transport

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/server/http1"
	"github.com/tutti-server/tutti/internal/tracing"
)

// BackgroundHeader is infer.BackgroundHeader as net/http has it.
const BackgroundHeader = "Tutti-Background"

// TimeLimitHeader is infer.TimeLimitHeader as net/http has it.
const TimeLimitHeader = "Tutti-Timeout-Ms"

// SetOrigin records in req what the headers say of a request that was read: whether it is in the background and, for the request's
// trace, which trace of the client it belongs to, and when it was read. client may be nil. route is the path of a request whose route is not
// one of Triton's.
func (s *Shared) SetOrigin(req *infer.Request, h http.Header, read tracing.Interval, client *infer.Client, route string) {
	req.Origin = tracing.Origin{Read: read, Start: tracing.HTTPRecvStart, Done: tracing.HTTPRecvEnd, Route: route}
	req.SetBackground(h[BackgroundHeader])
	req.SetClient(client)
	if parent := h["Traceparent"]; len(parent) == 1 && s.Tracer.On() {
		req.Origin.Follow(parent[0], strings.Join(h["Tracestate"], ","))
	}
}

// ForwardHeaders adds the selected headers to the request's parameters. Names are in lower case, as HTTP/2 and gRPC have them.
// Values keep trailing blanks, as in Triton, where the original header is known.
func (s *Shared) ForwardHeaders(req *infer.Request, r *http.Request) (err error) {
	s.EachForwarded(r, func(name, value string) {
		if err == nil {
			err = req.Forward(strings.ToLower(name), value)
		}
	})
	return err
}

// EachForwarded calls add with each header that the settings select.
func (s *Shared) EachForwarded(r *http.Request, add func(name, value string)) {
	pattern := s.Forward
	if pattern == nil {
		return
	}
	matching := func(name, value string) {
		if pattern.MatchString(name) {
			add(name, value)
		}
	}
	if http1.Fields(r, matching) {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		values := r.Header[name]
		matching(name, values[len(values)-1])
	}
}
