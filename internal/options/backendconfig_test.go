package options_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/internal/options"
)

// TestBackendConfigArgs checks that the flags of Args set the same settings.
func TestBackendConfigArgs(t *testing.T) {
	t.Parallel()
	want := options.BackendConfig{"": {"k": "v,w=x"}, "b": {"l": "1", "k": "2"}}
	if err := want.SetDirectory("a folder"); err != nil {
		t.Fatal(err)
	}
	o, err := options.Parse(append([]string{"--model-repository=r"}, want.Args()...), nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, o.BackendConfig); diff != "" {
		t.Error(diff)
	}
}
