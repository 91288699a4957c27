package repository_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/status"
)

// step returns an ensemble step with its model, version, input and output.
func step(model, version, in, out string) string {
	inner := "OUT"
	if strings.HasPrefix(model, "ens") {
		inner = "X"
	}
	return `step { model_name: "` + model + `" model_version: ` + version + ` input_map { key: "IN" value: "` + in +
		`" } output_map { key: "` + inner + `" value: "` + out + `" } }` + "\n"
}

// ensemble returns the configuration of an ensemble from IN to X.
func ensemble(name string, steps ...string) string {
	return "-- " + name + `/config.pbtxt --
platform: "ensemble" max_batch_size: 8
input { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] }
output { name: "X" data_type: TYPE_FP32 dims: [ -1 ] }
ensemble_scheduling {
` + strings.Join(steps, "") + "}\n"
}

// plain returns the configuration of a model.
func plain(name, backend string) string {
	return "-- " + name + "/1/ --\n-- " + name + "/config.pbtxt --\n" + `backend: "` + backend + `" max_batch_size: 8` + "\n"
}

const doubleModel = "-- plain/2/ --\n-- plain/config.pbtxt --\n" + doubles + "\n"

func TestEnsembles(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		archive string
		want    string // why model "ens" does not serve
	}{
		{"latest", ensemble("ens", step("plain", "-1", "IN", "X")), ""},
		{"pinned", ensemble("ens", step("plain", "2", "IN", "X")), ""},
		{
			"other version", ensemble("ens", step("plain", "1", "IN", "X")),
			"ensemble 'ens' depends on 'plain' whose required version 1 is not loaded.",
		},
		{
			"missing model", ensemble("ens", step("none", "-1", "IN", "M"), step("absent", "-1", "M", "X")),
			"ensemble ens contains models that are not available or ambiguous: absent, none",
		},
		{
			"invalid model", plain("torn", "native\n") + ensemble("ens", step("torn", "-1", "IN", "X")),
			"ensemble 'ens' depends on 'torn' which is not valid. Model 'torn' failed with error: failed to read text proto from ",
		},
		{
			"model that does not load", plain("unloadable", "spy") + ensemble("ens", step("unloadable", "-1", "IN", "X")),
			"ensemble 'ens' depends on 'unloadable' which has no loaded version. Model 'unloadable' loading failed with error: the file is torn",
		},
		{
			"cycle", ensemble("ens", step("plain", "-1", "X", "M"), step("plain", "-1", "M", "X")),
			"ensemble input 'IN' for ensemble ens' is not used",
		},
		{
			"ensemble in itself", ensemble("ens", step("ens", "-1", "IN", "X")),
			"circular dependency between ensembles: ens -> ... -> ens -> ens (ens -> ens)",
		},
		{
			"ensembles in each other", ensemble("ens", step("ens2", "-1", "IN", "X")) + ensemble("ens2", step("ens", "-1", "IN", "X")),
			"circular dependency between ensembles: ens -> ... -> ens2 -> ens (ens -> ens2 -> ens)",
		},
		{"nested", ensemble("ens", step("ens2", "1", "IN", "X")) + ensemble("ens2", step("plain", "-1", "IN", "X")), ""},
		{
			"nested of another version", ensemble("ens", step("ens2", "3", "IN", "X")) + ensemble("ens2", step("plain", "-1", "IN", "X")),
			"ensemble 'ens' depends on 'ens2' whose required version 3 is not loaded.",
		},
		{
			"nested without its model", ensemble("ens", step("ens2", "-1", "IN", "X")) + ensemble("ens2", step("none", "-1", "IN", "X")),
			"ensemble 'ens' depends on 'ens2' which is not valid. Model 'ens2' failed with error: ensemble ens2 contains models that are not available or ambiguous: none",
		},
	} {
		for _, devices := range []int{0, 1, 2} {
			t.Run(fmt.Sprintf("%s/devices=%d", tc.name, devices), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				if devices > 0 {
					w.atDevices(t, devices)
				}
				r := w.repo(t, folder(t, doubleModel+tc.archive))
				if tc.want == "" {
					if got, err := send(t.Context(), r, w.request("ens", 3)); err != nil || got != 6 {
						t.Errorf("got %v, %v; want 6", got, err)
					}
					if !r.Ready() {
						t.Error("not ready")
					}
					return
				}
				if got := failures(r)["ens"]; !strings.HasPrefix(got, tc.want) {
					t.Errorf("failure %q\nwant %q", got, tc.want)
				}
				if _, err := send(t.Context(), r, w.request("ens", 3)); status.CodeOf(err) != status.NotFound {
					t.Errorf("an ensemble that failed returned %v", err)
				}
				if got, err := send(t.Context(), r, w.request("plain", 3)); err != nil || got != 6 {
					t.Errorf("the model beside it: %v, %v", got, err)
				}
			})
		}
	}
}

// TestCycleIsNamed checks that the error about a cycle names its steps and no others.
func TestCycleIsNamed(t *testing.T) {
	t.Parallel()
	pair := `-- sum/1/ --
-- sum/config.pbtxt --
backend: "identity" max_batch_size: 8
input { name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] }
input { name: "INPUT1" data_type: TYPE_FP32 dims: [ -1 ] }
output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] }
output { name: "OUTPUT1" data_type: TYPE_FP32 dims: [ -1 ] }
`
	const first = `step { model_name: "sum" model_version: -1 input_map { key: "INPUT0" value: "IN" } input_map { key: "INPUT1" value: "B" }
output_map { key: "OUTPUT0" value: "X" } output_map { key: "OUTPUT1" value: "A" } }
`
	r := newWorld(t).repo(t, folder(t, pair+doubleModel+ensemble("ens", first, step("plain", "-1", "A", "B"))))
	want := map[string]string{
		"ens": "output 'X' for ensemble 'ens' is not written: at least one of its depending tensors, 'B', is not connected (cycle: sum -> plain -> sum)",
	}
	if d := cmp.Diff(want, failures(r)); d != "" {
		t.Errorf("failures (-want +got):\n%s", d)
	}
}
