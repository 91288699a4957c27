package httpapi

import (
	"net/http"
	"strings"

	"tutti/core/infer"
	"tutti/core/status"
)

// forward makes parameters of the headers that the server's pattern matches, under
// their names in lower case: net/http does not keep how the client wrote them, and
// HTTP/2 knows no other case.
func (x *exchange) forward(h http.Header) error {
	pattern := x.srv.forward
	if pattern == nil {
		return nil
	}
	for name, values := range h {
		if !pattern.MatchString(name) {
			continue
		}
		name = strings.ToLower(name)
		if reservedHeader(name) {
			return status.Errorf(status.InvalidArg, "Header '%s' is reserved for Triton usage and cannot be forwarded.", name)
		}
		x.req.Params = setString(x.req.Params, name, values[len(values)-1])
	}
	return nil
}

// reservedHeader reports whether a header's name is that of a parameter with a meaning of its own.
func reservedHeader(name string) bool {
	switch name {
	case "sequence_id", "sequence_start", "sequence_end", "priority", "timeout", "headers", "binary_data_output":
		return true
	}
	return infer.ReservedParam(name)
}

// setString sets a parameter, in place of one that the request's JSON gave.
func setString(list infer.Params, key, value string) infer.Params {
	p := infer.Param{Key: key, Kind: infer.ParamString, String: value}
	for i := range list {
		if list[i].Key == key {
			list[i] = p
			return list
		}
	}
	return append(list, p)
}
