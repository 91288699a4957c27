package httpapi

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/internal/server/http1"
)

// forward makes parameters of the headers that the server's pattern matches, under their names in lower case: HTTP/2 and
// gRPC know no other. Triton's models get a value with the blanks at its end, and so do they here where these are known.
func (x *exchange) forward(r *http.Request) (err error) {
	pattern := x.srv.forward
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
