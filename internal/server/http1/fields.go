package http1

import "net/http"

// connKey finds the connection in the context of its requests.
type connKey struct{}

// Fields calls yield with the name and value of each field of a request's header, in their order and as they came: the
// value keeps the blanks at its end, which RFC 9110 (5.5) has a reader cut off, and the request's own header lacks. Host is
// left out, as there. It returns false, and calls nothing, for a request that net/http has read, of which that is not known.
// It must not be called after the handler has returned.
func Fields(r *http.Request, yield func(name, value string)) bool {
	c, ok := r.Context().Value(connKey{}).(*conn)
	if !ok {
		return false
	}
	for i := range c.head.fields[:c.head.n] {
		if f := &c.head.fields[i]; f.key != "Host" {
			yield(f.name, f.sent)
		}
	}
	return true
}
