package httpapi

import (
	"net/http"

	"github.com/tutti-server/tutti/core/status"
)

// readObject reads a request's body, which must be JSON if there is any, and stops
// at its value; without a body it reports false. Unlike an infer request, it is
// checked for syntax as a whole before anything is made of it.
func (x *exchange) readObject(w http.ResponseWriter, r *http.Request) (bool, error) {
	b, err := x.open(w, r, false)
	if err != nil {
		return false, err
	}
	if err := x.readAll(&b); err != nil {
		return false, err
	}
	if len(x.body) == 0 {
		return false, nil
	}
	if err := x.p.validate(x.body); err != nil {
		return false, err
	}
	x.p.begin(x.body)
	return true, x.p.root()
}

// members calls read with the name of each member of the object at the cursor; read
// reads the value.
func (x *exchange) members(read func(key string) error) error {
	if x.p.peek() != '{' {
		return status.Errorf(status.Internal, "%s", noMembers)
	}
	more, err := x.p.enter('}')
	for ; more && err == nil; more, err = x.p.more('}') {
		key, err := x.p.key()
		if err != nil {
			return err
		}
		if err := read(string(key)); err != nil {
			return err
		}
	}
	return err
}

// control reads the object that a request other than for inference consists of. It
// must have one unless none is as good as an empty one.
func (s *Server) control(w http.ResponseWriter, r *http.Request, optional bool, member func(x *exchange, key string) error) error {
	x := s.newExchange()
	defer x.release()
	err := x.readControl(w, r, optional, member)
	if err != nil {
		s.drain(w, r, err)
	}
	return err
}

func (x *exchange) readControl(w http.ResponseWriter, r *http.Request, optional bool, member func(x *exchange, key string) error) error {
	if err := plainBody(r); err != nil {
		return err
	}
	ok, err := x.readObject(w, r)
	switch {
	case err != nil:
		return err
	case ok:
		return x.members(func(key string) error { return member(x, key) })
	case optional:
		return nil
	default:
		return x.p.fail(msgEmpty, 0)
	}
}

// null reports whether the value at the cursor is null, and then reads it.
func (x *exchange) null() (bool, error) {
	if x.p.peek() != 'n' {
		return false, nil
	}
	return true, x.p.literal("null")
}
