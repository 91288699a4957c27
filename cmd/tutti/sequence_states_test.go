package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/proto/inference"
)

// TestBadStates checks the errors of models with invalid states, over HTTP and gRPC.
func TestBadStates(t *testing.T) {
	t.Parallel()
	a := serve(t, "--model-repository="+sequenceModels(t), "--model-control-mode=explicit")
	stub := dialStub(t, a.grpc)
	const one, same = `"name":"z","data_type":"TYPE_INT32","dims":[1]`, `"data_type":"TYPE_INT32","dims":[1]`
	for states, want := range map[string]string{
		`{"input_name":"S","output_name":"A",` + same + `},{"input_name":"S","output_name":"B",` + same + `}`: "State input name 'S' specified more than once.",
		state(`"data_type":"TYPE_INT32","dims":[1],"zero_data":true`):                                         "Field 'name' must be set when using initial_state for state input 'S'.",
		state(`"name":"z","data_type":"TYPE_FP32","dims":[1],"zero_data":true`):                               "The data type used for 'initial_state' field of state 'S' does not match the state data type.",
		state(`"name":"z","data_type":"TYPE_INT32","dims":[1,1],"zero_data":true`):                            "Number of dimensions in 'initial_state' doesn't match the size of 'state' dimensions for state input 'S'. 2 != 1",
		state(`"name":"z","data_type":"TYPE_INT32","dims":[-1],"zero_data":true`):                             "'initial_state' field for state input name 'S' contains variable dimensions.",
		state(one + `,"zero_data":true},{` + one + `,"zero_data":true`):                                       "initial_state field for state input 'S' must contain exactly one or zero element. Found '2' elements.",
		state(one + `,"data_file":"three"`):                                                                   "initial_state setting expects 4 bytes, but the data provided from threeonly has 3 bytes.",
		state(one + `,"data_file":"none"`):                                                                    "failed to open text file for read none",
		state(one + `,"data_file":"../1/.keep"`):                                                              "'../1/.keep'",
	} {
		config := `{"backend":"sequence","max_batch_size":4,"sequence_batching":{"control_input":[` +
			`{"name":"START","control":[{"kind":"CONTROL_SEQUENCE_START","int32_false_true":[0,1]}]},` +
			`{"name":"READY","control":[{"kind":"CONTROL_SEQUENCE_READY","int32_false_true":[0,1]}]}],"state":[` + states + `]}}`
		_, text := post(t, "http://"+a.http+"/v2/repository/models/kept/load", fmt.Sprintf(`{"parameters":{"config":%q}}`, config))
		if !strings.Contains(text, want) {
			t.Errorf("over HTTP: %s, want %s", text, want)
		}
		_, err := stub.RepositoryModelLoad(t.Context(), &inference.RepositoryModelLoadRequest{ModelName: "kept", Parameters: map[string]*inference.ModelRepositoryParameter{
			"config": {ParameterChoice: &inference.ModelRepositoryParameter_StringParam{StringParam: config}},
		}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("over gRPC: %v, want %s", err, want)
		}
	}
}

// state returns a configuration of a state with the given initial value.
func state(initial string) string {
	return `{"input_name":"S","output_name":"T","data_type":"TYPE_INT32","dims":[1],"initial_state":[{` + initial + `}]}`
}
