package python

import (
	"strings"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
)

// States of responses.
const (
	stateOK uint8 = iota
	stateError
	stateNone
	stateReschedule
)

// largeBytes is the least size of a tensor that stays in the memory of the worker; smaller ones are copied.
const largeBytes = 32 << 10

// answer is a decoded response of a worker. Its slices are reused.
type response struct {
	state  uint8
	code   status.Code
	parts  []part
	text   string
	params infer.Params
	names  []string
}

// read decodes a response.
//
// hot: no allocation unless it has an extra part.
func (a *response) read(r *reader) {
	a.state = r.u8()
	a.code = codeOf(r.u8())
	n := int(r.u16())
	extra := int(r.u32())
	a.parts, a.text, a.params, a.names = a.parts[:0], "", a.params[:0], a.names[:0]
	for range n {
		if r.bad {
			return
		}
		a.parts = append(a.parts, r.part())
	}
	if extra == 0 {
		return
	}
	x := reader{b: r.take(extra)}
	a.text = x.text()
	a.params = x.params(a.params)
	for i := range a.parts {
		if a.parts[i].index == named && !x.bad {
			a.names = append(a.names, x.text())
		}
	}
	r.bad = r.bad || x.bad
}

// err returns the error of the response, or nil.
func (a *response) err() error {
	if a.state != stateError {
		return nil
	}
	return &status.Error{Code: a.code, Msg: strings.ToValidUTF8(a.text, "\uFFFD")}
}
