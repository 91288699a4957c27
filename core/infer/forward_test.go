package infer_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
)

func TestForward(t *testing.T) {
	t.Parallel()
	r := infer.NewRequest()
	defer r.Release()
	r.Params = append(r.Params, infer.Param{Key: "x-two", Kind: infer.ParamInt, Int: 2})
	for _, h := range [][2]string{{"x-one", "1"}, {"x-two", "two"}, {"x-one", "one"}} {
		if err := r.Forward(h[0], h[1]); err != nil {
			t.Error(err)
		}
	}
	want := infer.Params{{Key: "x-two", Kind: infer.ParamString, String: "two"}, {Key: "x-one", Kind: infer.ParamString, String: "one"}}
	if diff := cmp.Diff(want, r.Params); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, name := range []string{"timeout", "headers", "triton_any"} {
		err := r.Forward(name, "")
		if status.CodeOf(err) != status.InvalidArg || err.Error() != "Header '"+name+"' is reserved for Triton usage and cannot be forwarded." {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(r.Params) != 2 {
		t.Errorf("parameters are %v", r.Params)
	}
}
