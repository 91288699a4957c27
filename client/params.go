package client

import (
	"fmt"
	"maps"

	"github.com/tutti-server/tutti/proto/inference"
)

// parameters returns the parameters of a request in their JSON form: those of the sequence included.
func (req *Request) parameters() (map[string]any, error) {
	all := make(map[string]any, len(req.Parameters)+3)
	for key, v := range req.Parameters {
		switch v := v.(type) {
		case bool, string, int64, uint64, float64:
			all[key] = v
		case int:
			all[key] = int64(v)
		default:
			return nil, fmt.Errorf("parameter '%s' is a %T, expected bool, string, int, int64, uint64 or float64", key, v)
		}
	}
	if s := req.Sequence; s != nil {
		all["sequence_id"] = s.ID
		if s.Name != "" {
			all["sequence_id"] = s.Name
		}
		all["sequence_start"], all["sequence_end"] = s.Start, s.End
	}
	return all, nil
}

// inferParameters returns parameters in their gRPC form.
func inferParameters(all map[string]any) map[string]*inference.InferParameter {
	out := make(map[string]*inference.InferParameter, len(all))
	for key, v := range all {
		p := &inference.InferParameter{}
		switch v := v.(type) {
		case bool:
			p.ParameterChoice = &inference.InferParameter_BoolParam{BoolParam: v}
		case string:
			p.ParameterChoice = &inference.InferParameter_StringParam{StringParam: v}
		case int64:
			p.ParameterChoice = &inference.InferParameter_Int64Param{Int64Param: v}
		case uint64:
			p.ParameterChoice = &inference.InferParameter_Uint64Param{Uint64Param: v}
			if key == "sequence_id" { // whose type is int64
				p.ParameterChoice = &inference.InferParameter_Int64Param{Int64Param: int64(v)} //nolint:gosec // two's complement
			}
		case float64:
			p.ParameterChoice = &inference.InferParameter_DoubleParam{DoubleParam: v}
		}
		out[key] = p
	}
	return out
}

// values returns parameters of the gRPC form as Response.Parameters.
func values(all map[string]*inference.InferParameter) map[string]any {
	if len(all) == 0 {
		return nil
	}
	out := make(map[string]any, len(all))
	for key, p := range all {
		switch v := p.GetParameterChoice().(type) {
		case *inference.InferParameter_BoolParam:
			out[key] = v.BoolParam
		case *inference.InferParameter_StringParam:
			out[key] = v.StringParam
		case *inference.InferParameter_Int64Param:
			out[key] = v.Int64Param
		case *inference.InferParameter_Uint64Param:
			out[key] = v.Uint64Param
		case *inference.InferParameter_DoubleParam:
			out[key] = v.DoubleParam
		}
	}
	return out
}

// The parameters of a tensor in shared memory.
const (
	regionName   = "shared_memory_region"
	regionOffset = "shared_memory_offset"
	regionSize   = "shared_memory_byte_size"
)

// parameters returns the parameters of a tensor in the region, in their gRPC form.
func (r *Region) parameters() map[string]*inference.InferParameter {
	all := inferParameters(map[string]any{regionName: r.Name, regionSize: int64(r.Size)}) //nolint:gosec // below 2^63
	if r.Offset > 0 {
		maps.Copy(all, inferParameters(map[string]any{regionOffset: int64(r.Offset)})) //nolint:gosec // below 2^63
	}
	return all
}

// regionOf returns the region of an output, or nil.
func regionOf(p map[string]*inference.InferParameter) *Region {
	name := p[regionName].GetStringParam()
	if name == "" {
		return nil
	}
	number := func(p *inference.InferParameter) uint64 {
		return max(p.GetUint64Param(), uint64(max(p.GetInt64Param(), 0))) //nolint:gosec // not negative
	}
	return &Region{Name: name, Offset: number(p[regionOffset]), Size: number(p[regionSize])}
}
