package main

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"testing"
)

// modelTimes are the times in a model's statistics, in ns.
type modelTimes struct {
	count                         uint64
	input, infer, output, success uint64
}

// timesOf asks for the statistics of a model.
func timesOf(t *testing.T, a addresses, model string) modelTimes {
	t.Helper()
	type duration struct{ Count, Ns uint64 }
	var r struct {
		Stats []struct {
			Stats struct {
				Success duration `json:"success"`
				Input   duration `json:"compute_input"`
				Infer   duration `json:"compute_infer"`
				Output  duration `json:"compute_output"`
			} `json:"inference_stats"`
		} `json:"model_stats"`
	}
	resp, err := http.Get("http://" + a.http + "/v2/models/" + model + "/stats") //nolint:noctx // ends with the server
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if err := json.NewDecoder(resp.Body).Decode(&r); err != nil {
		t.Fatal(err)
	}
	if len(r.Stats) != 1 {
		t.Fatalf("statistics of %d versions of model %s", len(r.Stats), model)
	}
	s := r.Stats[0].Stats
	return modelTimes{s.Infer.Count, s.Input.Ns, s.Infer.Ns, s.Output.Ns, s.Success.Ns}
}

// TestTimesOfStepsAtDevice sends images through native steps and a model at a device that takes at least 2 ms for each operation. The
// statistics that follow a response have the device's time: of every step, together at least what the driver has worked in their streams,
// and in the ensemble the sum of its steps.
func TestTimesOfStepsAtDevice(t *testing.T) { //nolint:paralleltest // counts the work of the process
	files, _ := filepath.Glob("../../examples/ensembles/image/*.jpg")
	file, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	d, c, flags := newDrive(t, 2, 3)
	flags = flags[:len(flags)-1] // models of sim only
	model := `backend: "sim" parameters { key: "sim.backend" value { string_value: "identity" } } instance_group { kind: KIND_GPU gpus: 0 }`
	gpu := serveWith(t, c, append(flags, "--model-repository="+chainRepository(t, model))...)
	t.Cleanup(func() { d.check(t, metricsOf(t, gpu)) })
	steps := []string{"pre", "flat", "model", "soft", "top"}
	const each = 2_000_000
	d.Set("work_us", each/1000)
	defer d.Set("work_us", 0)
	for i := range uint64(3) {
		before, sums, former := d.Count(), modelTimes{}, timesOf(t, gpu, "chain")
		for _, s := range steps {
			x := timesOf(t, gpu, s)
			sums.input, sums.infer, sums.output = sums.input-x.input, sums.infer-x.infer, sums.output-x.output
		}
		sendImage(t, gpu, "chain", file)
		after := d.Count()
		for _, s := range steps {
			x := timesOf(t, gpu, s)
			if x.count != i+1 {
				t.Errorf("request %d: step %s has %d requests", i, s, x.count)
			}
			if least := (i + 1) * each; s != "flat" && x.input+x.infer < least { // flat only looks at its input in another way
				t.Errorf("request %d: step %s took %+v, want at least %d ns", i, s, x, least)
			}
			sums.input, sums.infer, sums.output = sums.input+x.input, sums.infer+x.infer, sums.output+x.output
		}
		worked := after.BusyNs - before.BusyNs - (after.Down-before.Down)*each // the copies for the response are in no step's stream
		if got := sums.input + sums.infer + sums.output; worked == 0 || got < worked {
			t.Errorf("request %d: the steps took %d ns, and the driver worked %d ns for them", i, got, worked)
		}
		chain := timesOf(t, gpu, "chain")
		if chain.input-former.input != sums.input || chain.infer-former.infer != sums.infer || chain.output-former.output != sums.output {
			t.Errorf("request %d: the ensemble has %+v more than %+v, its steps %+v", i, chain, former, sums)
		}
		if total := chain.success - former.success; total < worked {
			t.Errorf("request %d: the ensemble took %d ns, and the driver worked %d ns for it", i, total, worked)
		}
	}
}
