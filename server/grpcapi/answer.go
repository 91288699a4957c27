package grpcapi

import (
	"strconv"

	"tutti/core/infer"
	"tutti/proto/inference"
)

// answer turns a response into a message. Outputs are always raw, and copied: the
// message is encoded after the response has been released.
func answer(resp *infer.Response) *inference.ModelInferResponse {
	size := 0
	for i := range resp.Outputs {
		size += resp.Outputs[i].Tensor.Len
	}
	msg := &inference.ModelInferResponse{
		ModelName:         resp.Model,
		ModelVersion:      strconv.FormatInt(resp.Version, 10),
		Id:                resp.ID,
		Parameters:        answerParams(resp.Params),
		Outputs:           make([]*inference.ModelInferResponse_InferOutputTensor, len(resp.Outputs)),
		RawOutputContents: make([][]byte, len(resp.Outputs)),
	}
	outputs := make([]inference.ModelInferResponse_InferOutputTensor, len(resp.Outputs))
	memory := make([]byte, 0, size)
	for i := range resp.Outputs {
		t := &resp.Outputs[i].Tensor
		out := &outputs[i]
		out.Name, out.Datatype = resp.Outputs[i].Name, t.DType.String()
		out.Shape = append([]int64(nil), t.Shape.Dims()...)
		start := len(memory)
		memory = append(memory, t.Bytes()...)
		msg.Outputs[i], msg.RawOutputContents[i] = out, memory[start:len(memory):len(memory)]
	}
	return msg
}

func answerParams(list infer.Params) map[string]*inference.InferParameter {
	if len(list) == 0 {
		return nil
	}
	m := make(map[string]*inference.InferParameter, len(list))
	for i := range list {
		p := &list[i]
		v := &inference.InferParameter{}
		switch p.Kind {
		case infer.ParamBool:
			v.ParameterChoice = &inference.InferParameter_BoolParam{BoolParam: p.Bool}
		case infer.ParamInt:
			v.ParameterChoice = &inference.InferParameter_Int64Param{Int64Param: p.Int}
		case infer.ParamUint:
			v.ParameterChoice = &inference.InferParameter_Uint64Param{Uint64Param: p.Uint}
		case infer.ParamDouble:
			v.ParameterChoice = &inference.InferParameter_DoubleParam{DoubleParam: p.Double}
		default:
			v.ParameterChoice = &inference.InferParameter_StringParam{StringParam: p.String}
		}
		m[p.Key] = v
	}
	return m
}
