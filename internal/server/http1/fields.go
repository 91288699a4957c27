package http1

import "net/http"

// connKey is the context key under which a request finds its connection.
type connKey struct{}

// Fields calls yield for each header field of a request, in the order and spelling in which the client sent it. Values keep
// trailing blanks, which RFC 9110 (5.5) removes and r.Header lacks: "x: a \r\n" yields "x" and "a ". Host is left out, as in
// r.Header.
//
// It returns false without calling yield for a request that net/http has parsed, whose original fields are unknown. It must
// not be called after the handler has returned.
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
