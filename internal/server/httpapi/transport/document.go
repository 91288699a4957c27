package transport

import (
	"net/http"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/server/httpapi/jsonwire"
)

// ReadDocument reads a body that is one JSON document into buf, checks its syntax as a whole, and begins it in p. ok is false for
// an empty body. It returns the grown buf.
func (b *Body) ReadDocument(w http.ResponseWriter, r *http.Request, p *jsonwire.Parser, buf []byte) (_ []byte, ok bool, err error) {
	if err := b.Open(w, r, false); err != nil {
		return buf, false, err
	}
	buf, err = b.ReadJSON(buf[:0])
	if err != nil || len(buf) == 0 {
		return buf, false, err
	}
	return buf, true, p.Document(buf)
}

// RequireIdentity returns an error for a body in any Content-Encoding. Only infer requests may have one.
func RequireIdentity(r *http.Request) error {
	if v := r.Header.Get("Content-Encoding"); v != "" && v != "identity" {
		return status.Errorf(status.InvalidArg, "Unsupported content-encoding, only 'identity' is supported.")
	}
	return nil
}
