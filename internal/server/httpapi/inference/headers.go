package inference

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/internal/server/http1"
)

// forwardHeaders adds the selected headers to the request's parameters. Names are in lower case, as HTTP/2 and gRPC have them.
// Values keep trailing blanks, as in Triton, where the original header is known.
func (x *exchange) forwardHeaders(r *http.Request) (err error) {
	pattern := x.srv.Forward
	if pattern == nil {
		return nil
	}
	add := func(name, value string) {
		if err == nil && pattern.MatchString(name) {
			err = x.req.Forward(strings.ToLower(name), value)
		}
	}
	if http1.Fields(r, add) {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		values := r.Header[name]
		add(name, values[len(values)-1])
	}
	return err
}
