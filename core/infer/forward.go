package infer

import "github.com/tutti-server/tutti/core/status"

// Forward makes a parameter of a client's header that the server is to pass on, in
// place of one of that name. The name is in lower case: HTTP/2 and gRPC know no other.
// Names with a meaning of their own are an InvalidArg.
func (r *Request) Forward(name, value string) error {
	if ReservedParam(name) || reservedHeader(name) {
		return status.Errorf(status.InvalidArg, "Header '%s' is reserved for Triton usage and cannot be forwarded.", name)
	}
	p := Param{Key: name, Kind: ParamString, String: value}
	for i := range r.Params {
		if r.Params[i].Key == name {
			r.Params[i] = p
			return nil
		}
	}
	r.Params = append(r.Params, p)
	return nil
}

// reservedHeader reports whether a parameter of this name means something to the server.
func reservedHeader(name string) bool {
	switch name {
	case "sequence_id", "sequence_start", "sequence_end", "priority", "timeout", "headers", "binary_data_output":
		return true
	}
	return false
}
