package repository_test

import (
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"tutti/core/telemetry"
)

// TestTensorsStayAtTheDevice has a diamond of models, one input read by two, at one and
// at two devices: every request goes up once and comes down once, whoever asks at the
// same time, and its tensors never leave their device.
func TestTensorsStayAtTheDevice(t *testing.T) {
	t.Parallel()
	const requests = 40
	for _, devices := range []int{1, 2} {
		w := newWorld(t)
		w.atDevices(t, devices)
		r := w.repo(t, folder(t, doubleModel+strings.Replace(ensemble("ens",
			step("plain", "-1", "IN", "A"), step("plain", "-1", "IN", "B"), step("plain", "-1", "A", "X"), step("plain", "-1", "B", "Y"),
		), "ensemble_scheduling", `output { name: "Y" data_type: TYPE_FP32 dims: [ -1 ] }
ensemble_scheduling`, 1)))
		var wg sync.WaitGroup
		for i := range requests {
			wg.Go(func() {
				if got, err := ask(t.Context(), r, w.request("ens", float32(i))); err != nil || got != float32(4*i) {
					t.Errorf("got %v, %v; want %d", got, err, 4*i)
				}
			})
		}
		wg.Wait()
		var up, down, peer int64
		for _, d := range w.machine.Devices() {
			s := d.Stats()
			up, down, peer = up+s.Up.Count, down+s.Down.Count, peer+s.Peer.Count
		}
		if up != requests || down != 2*requests || peer != 0 {
			t.Errorf("%d devices: %d copies up, %d down and %d across for %d requests with one input and two outputs", devices, up, down, peer, requests)
		}
		text := scrapeText(t, w.metrics)
		for line := range strings.SplitSeq(text, "\n") {
			if strings.HasPrefix(line, "ensemble_moves") && !strings.Contains(line, `reason="device_step"`) && !strings.Contains(line, `reason="response"`) {
				t.Errorf("a move between steps: %s", line)
			}
		}
		if p, err := r.Plan("ens", -1); err != nil || p.Devices != 1<<devices-1 || !strings.Contains(p.Text(), "move IN from host to device for step") {
			t.Errorf("plan %v, %v", p, err)
		}
	}
}

func scrapeText(t *testing.T, x *telemetry.Metrics) string {
	t.Helper()
	rec := httptest.NewRecorder()
	promhttp.HandlerFor(x, promhttp.HandlerOpts{}).ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	return rec.Body.String()
}

// TestInstanceGroupsAtDevices serves models of backend sim as a user would, by their
// instance groups.
func TestInstanceGroupsAtDevices(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.more.BackendConfig = map[string]map[string]string{"sim": {"devices": "2"}}
	model := func(name, group string) string {
		return "-- " + name + "/1/ --\n-- " + name + `/config.pbtxt --
backend: "sim" max_batch_size: 8 parameters { key: "sim.backend" value { string_value: "identity" } }
input { name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] } output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] }
` + group + "\n"
	}
	link := func(model, in, out string) string {
		return `step { model_name: "` + model + `" model_version: -1 input_map { key: "INPUT0" value: "` + in + `" } output_map { key: "OUTPUT0" value: "` + out + `" } }` + "\n"
	}
	r := w.repo(t, folder(t, model("anywhere", "")+model("second", "instance_group { kind: KIND_GPU gpus: 1 count: 2 }")+
		model("absent", "instance_group { kind: KIND_GPU gpus: 2 }")+
		ensemble("ens", link("anywhere", "IN", "A"), link("second", "A", "B"), link("anywhere", "B", "X"))))
	for i := range 10 {
		if got, err := ask(t.Context(), r, w.request("ens", float32(i))); err != nil || got != float32(i) {
			t.Errorf("got %v, %v; want %d", got, err, i)
		}
	}
	p, err := r.Plan("ens", -1)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"at device:0 or device:1\n", "at device:1\n", "move IN from host to device for step 0 input INPUT0\n", "move X from device to host for the answer\n"} {
		if !strings.Contains(p.Text(), line) {
			t.Errorf("no %q in\n%s", line, p.Text())
		}
	}
	if text := scrapeText(t, w.metrics); strings.Contains(text, "device:0") || !strings.Contains(text, `ensemble_moves_total{from="host",model="anywhere",reason="device_step",tensor="INPUT0",to="device:1",version="1"} 10`) {
		t.Errorf("requests were not bound to the one device where all steps can be:\n%s", text)
	}
	if got := failures(r)["absent"]; !strings.Contains(got, "2") {
		t.Errorf("a group at a device that is not there: %q", got)
	}
}
