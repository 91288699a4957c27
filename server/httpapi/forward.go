package httpapi

import (
	"net/http"
	"strings"
)

// forward makes parameters of the headers that the server's pattern matches, under
// their names in lower case: net/http does not keep how the client wrote them.
func (x *exchange) forward(h http.Header) error {
	pattern := x.srv.forward
	if pattern == nil {
		return nil
	}
	for name, values := range h {
		if !pattern.MatchString(name) {
			continue
		}
		if err := x.req.Forward(strings.ToLower(name), values[len(values)-1]); err != nil {
			return err
		}
	}
	return nil
}
