package admin

import (
	"net/http"

	"github.com/tutti-server/tutti/internal/pool"
	"github.com/tutti-server/tutti/internal/server/httpapi/jsonwire"
	"github.com/tutti-server/tutti/internal/server/httpapi/transport"
)

// document is the body of an administration request.
type document struct {
	in   transport.Body
	p    jsonwire.Parser
	body []byte
}

// bodyLimit bounds the memory that a pooled document keeps.
const bodyLimit = 64 << 10

var documents pool.Of[document]

// readMembers reads a body that is one JSON object and calls member with the name of each of its members; member must read or
// skip the value. With optional an empty body is valid and has no members.
func (s *Service) readMembers(w http.ResponseWriter, r *http.Request, optional bool, member func(p *jsonwire.Parser, name string) error) error {
	d := documents.Get()
	d.in.Begin(s.set.Limits)
	err := d.readMembers(w, r, optional, member)
	if err != nil {
		s.set.Limits.Drain(w, r, err)
	}
	d.in.Release()
	d.p.Release(bodyLimit)
	if cap(d.body) > bodyLimit {
		d.body = nil
	}
	documents.Put(d)
	return err
}

func (d *document) readMembers(w http.ResponseWriter, r *http.Request, optional bool, member func(p *jsonwire.Parser, name string) error) error {
	if err := transport.RequireIdentity(r); err != nil {
		return err
	}
	var ok bool
	var err error
	d.body, ok, err = d.in.ReadDocument(w, r, &d.p, d.body)
	switch {
	case err != nil:
		return err
	case ok:
		return d.p.Object(func(name []byte) error { return member(&d.p, string(name)) })
	case optional:
		return nil
	default:
		return d.p.EmptyError()
	}
}
