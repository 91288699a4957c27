package infer_test

import (
	"testing"

	"github.com/tutti-server/tutti/core/infer"
)

func TestAPINames(t *testing.T) {
	t.Parallel()
	names := infer.APINames()
	for i, name := range names {
		if api, ok := infer.ParseAPI(name); !ok || int(api) != i || api.String() != name {
			t.Errorf("%s is %d %q, %v, want %d", name, api, api, ok, i)
		}
	}
	if api, ok := infer.ParseAPI("infer"); ok || api != infer.APINone {
		t.Errorf("infer is %s", api)
	}
	if len(names) != int(infer.APINone) || names[infer.APITrace] != "trace" {
		t.Errorf("the names are %v", names)
	}
}

func TestRestrict(t *testing.T) {
	t.Parallel()
	r := infer.Restrict([]infer.Restriction{
		{APIs: []infer.API{infer.APITrace, infer.APILogging, infer.APINone}, Key: "a", Value: "1"},
		{APIs: []infer.API{infer.APIHealth}, Key: "b", Value: "2"},
	})
	for api, key := range map[infer.API]string{infer.APITrace: "a", infer.APILogging: "a", infer.APIHealth: "b"} {
		if got := r.Of(api); got == nil || got.Key != key {
			t.Errorf("%s requires %v, want %s", api, got, key)
		}
	}
	for _, api := range []infer.API{infer.APIMetadata, infer.APINone, 99} {
		if got := r.Of(api); got != nil {
			t.Errorf("%s requires %v", api, got)
		}
	}
	if one := r.Of(infer.APITrace); !one.Met("1") || one.Met("") || one.Met("11") {
		t.Error("only 1 opens the trace settings")
	}
}
