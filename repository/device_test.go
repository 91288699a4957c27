package repository_test

import (
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
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
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(x)
	rec := httptest.NewRecorder()
	promhttp.HandlerFor(reg, promhttp.HandlerOpts{}).ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	return rec.Body.String()
}
