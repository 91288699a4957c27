package infer

import "github.com/tutti-server/tutti/core/status"

// Forward adds a client's header that the server forwards as a parameter, and replaces a parameter of that name.
// The name must be in lower case, as in HTTP/2 and gRPC. Reserved names are InvalidArg.
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

// reservedHeader reports whether the server itself uses a parameter of this name.
func reservedHeader(name string) bool {
	switch name {
	case "sequence_id", "sequence_start", "sequence_end", "priority", "timeout", "headers", "binary_data_output":
		return true
	}
	return false
}
