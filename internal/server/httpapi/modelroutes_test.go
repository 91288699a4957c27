package httpapi_test

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/server/httpapi"
	"github.com/tutti-server/tutti/internal/server/servertest"
)

// routed is a catalog in which the model "ensemble" has routes.
type routed struct {
	*servertest.Echo
	routes []infer.Route
}

func (c routed) Routes(model string, version int64) (*infer.Routes, error) {
	if err := c.ModelReady(model, version); err != nil {
		return nil, err
	}
	r := &infer.Routes{Model: model, Version: "1", Routes: []infer.Route{}}
	if model == "ensemble" {
		r.Routes = c.routes
	}
	return r, nil
}

// TestModelRoutes reads the routes of models, and compares each response with the OpenAPI document.
// shows: model_routes
func TestModelRoutes(t *testing.T) {
	t.Parallel()
	both := []infer.Alternative{{Model: "next", Share: 0.05, Requests: 3, Errors: 1, MeanNs: 1000}, {Model: "a:2", Share: 0.95}}
	c := routed{servertest.NewEcho(), []infer.Route{
		{Step: "a", Kind: "split", Key: "user", Alternatives: both},
		{Step: "b", Kind: "canary", Alternatives: both, Canary: &infer.Canary{State: infer.CanaryRunning, Stages: []float64{0.05, 1}, Stage: 1, Requests: 3, Errors: 1, Remaining: 97}},
		{Step: "c", Kind: "canary", Alternatives: both, Canary: &infer.Canary{
			State: infer.CanaryRolledBack, Reason: "too slow", Stages: []float64{1}, Stage: 1, Drift: &infer.Drift{Copies: 4, Different: 2, Max: 0.1},
		}},
		{Step: "d", Kind: "shadow", Shadow: &infer.Shadow{Model: "next", Share: 1, InFlight: 2, MaxInFlight: 16, Equal: 1, Different: 2, Failed: 3, Dropped: 4}},
	}}
	client := newJobsClient(t, nil, func(set *httpapi.Settings) { set.Catalog = c })
	for path, want := range map[string]*infer.Routes{
		"/v2/models/ensemble/routes": {Model: "ensemble", Version: "1", Routes: c.routes},
		"/v2/models/echo/routes":     {Model: "echo", Version: "1", Routes: []infer.Route{}},
	} {
		var got *infer.Routes
		client.do(http.MethodGet, path, "", http.StatusOK, &got)
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", path, d)
		}
	}
	client.do(http.MethodGet, "/v2/models/none/routes", "", http.StatusNotFound, nil)
	client.do(http.MethodGet, "/v2/models/unready/routes", "", http.StatusServiceUnavailable, nil)
	for path, want := range map[string]int{"/v2/models/ensemble/versions/1/routes": http.StatusOK, "/v2/models/ensemble/versions/7/routes": http.StatusNotFound} {
		if got := client.raw(http.MethodGet, path, ""); got.status != want {
			t.Errorf("%s: status %d, want %d: %s", path, got.status, want, got.body)
		}
	}
	if got := client.raw(http.MethodPost, "/v2/models/ensemble/routes", "{}"); got.status != http.StatusMethodNotAllowed {
		t.Errorf("POST: status %d", got.status)
	}
}
