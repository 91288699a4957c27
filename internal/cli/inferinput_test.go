package cli

import (
	"slices"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/core/infer"
)

// TestParseInput checks the tensors of arguments, and the errors of invalid ones.
func TestParseInput(t *testing.T) {
	t.Parallel()
	md := &infer.Metadata{Name: "m", Inputs: []infer.TensorMetadata{
		{Name: "I", Datatype: "INT32", Shape: []int64{-1, -1}},
		{Name: "U", Datatype: "UINT8", Shape: []int64{-1}},
		{Name: "F", Datatype: "FP32", Shape: []int64{-1}},
		{Name: "B", Datatype: "BOOL", Shape: []int64{-1}},
		{Name: "T", Datatype: "BYTES", Shape: []int64{-1}},
		{Name: "P", Datatype: "FP32", Shape: []int64{-1, 2, 3}},
		{Name: "Q", Datatype: "FP32", Shape: []int64{3}},
		{Name: "H", Datatype: "FP16", Shape: []int64{-1}},
	}}
	tests := []struct {
		arg, err string
		shape    []int64
		json     string
	}{
		{"I=7", "", []int64{1, 1}, "[7]"},
		{"I=1,2", "", []int64{1, 2}, "[1,2]"},
		{"I=[[1,2],[3,4],[5,6]]", "", []int64{3, 2}, "[1,2,3,4,5,6]"},
		{"F=[1,2.5]", "", []int64{2}, "[1,2.5]"},
		{"F=[]", "", []int64{0}, "[]"},
		{"B=true", "", []int64{1}, "[true]"},
		{"T=abc", "", []int64{1}, `["abc"]`},
		{`T=["a","b"]`, "", []int64{2}, `["a","b"]`},
		{"T=[1,2", "", []int64{1}, `["[1,2"]`},
		{"I=abc", "input 'I': 'abc' is no value of INT32, expected a whole number from -2147483648 to 2147483647, a JSON array of such, or @FILE", nil, ""},
		{"I=[1,2.5]", "input 'I': element 1 is 2.5, expected a whole number from -2147483648 to 2147483647 (INT32)", nil, ""},
		{"I=[1,2", "input 'I': the value is no JSON array: it ends before its last ']'", nil, ""},
		{"P=[1,2,3,4,5,6]", "", []int64{1, 2, 3}, "[1,2,3,4,5,6]"},
		{"P=[1,2]", "input 'P': found 2 elements, expected a multiple of 6 for the shape [-1,2,3]", nil, ""},
		{"P=5", "input 'P': found 1 elements, expected a multiple of 6 for the shape [-1,2,3]", nil, ""},
		{"P=[[[1,2],[3,4]]]", "input 'P': found an array of shape [1,2,2], expected [-1,2,3]", nil, ""},
		{"Q=[[1,2,3]]", "", []int64{3}, "[1,2,3]"},
		{"Q=[1,2]", "input 'Q': found an array of shape [2], expected [3]", nil, ""},
		{"I=[1]]", "input 'I': the value is no JSON array: something follows its last ']'", nil, ""},
		{"I=[1,a]", "input 'I': the value is no JSON array: invalid character 'a'", nil, ""},
		{"I=[[1,2],[3]]", "input 'I': arrays beside each other have 2 and 1 elements, expected as many in each", nil, ""},
		{"I=[1,[2]]", "input 'I': an array stands beside an element", nil, ""},
		{"I=[[1],2]", "input 'I': an element stands beside an array", nil, ""},
		{"U=256", "input 'U': element 0 is 256, expected a whole number from 0 to 255 (UINT8)", nil, ""},
		{"F=[1,\"x\"]", "input 'F': element 1 is \"x\", expected a number (FP32)", nil, ""},
		{"F=1e99", "input 'F': element 0 is 1e99, expected a number (FP32)", nil, ""},
		{"F=null", "input 'F': element 0 is null, expected a number (FP32)", nil, ""},
		{"B=yes", "input 'B': 'yes' is no value of BOOL, expected true or false, a JSON array of such, or @FILE", nil, ""},
		{"T=[1]", "input 'T': element 0 is 1, expected a text in quotes (BYTES)", nil, ""},
		{"H=1", "input 'H': values of FP16 have no text form, expected @FILE with their bytes", nil, ""},
		{"X=1", "model 'm' has no input 'X', expected one of: I, U, F, B, T, P, Q, H", nil, ""},
		{"I", "--input is 'I', expected NAME=VALUE", nil, ""},
	}
	for _, tt := range tests {
		t.Run(tt.arg, func(t *testing.T) {
			t.Parallel()
			got, err := (&inputFiles{}).parse(tt.arg, md)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("error = %v, want %s", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if text := jsonOf(t, &got); !slices.Equal(got.Shape, tt.shape) || !strings.HasSuffix(text, `"data":`+tt.json+"}") {
				t.Errorf("got %s, want %v %s", text, tt.shape, tt.json)
			}
		})
	}
}

func jsonOf(t *testing.T, x *client.Tensor) string {
	t.Helper()
	b, err := x.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
