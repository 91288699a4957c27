package httpapi_test

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor/tensortest"
	"github.com/tutti-server/tutti/internal/server/httpapi"
	"github.com/tutti-server/tutti/internal/server/servertest"
)

// TestHandlersKeepHeader verifies the contract of package http1: no handler modifies the header of its request, which the next
// request with an equal head gets again.
func TestHandlersKeepHeader(t *testing.T) {
	t.Parallel()
	e := servertest.NewEcho()
	s := httpapi.New(httpapi.Settings{
		Infer: e, Catalog: e, Alloc: tensortest.NewChecked(t, nil), Lifecycle: servertest.NewLifecycle("echo"),
		Forward: regexp.MustCompile("(?i)x-"), Restricted: []infer.Restriction{{Key: "X-Key", Value: "v", APIs: []infer.API{infer.APIStatistics}}},
	})
	names := strings.NewReplacer("{model}", "echo", "{version}", "1", "{name}", "n")
	bodies := []string{"", "{}", `{"inputs":[{"name":"X","shape":[1],"datatype":"FP32","data":[1]}]}`, "{"}
	for _, path := range append(httpapi.Routes(), "/nothing") {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			for _, body := range bodies {
				r := httptest.NewRequestWithContext(t.Context(), method, names.Replace(path), strings.NewReader(body))
				for name, value := range map[string]string{
					"Accept-Encoding": "gzip", "X-Key": "v", "X-Other": "a, b ", "Connection": "close", "Content-Type": "application/json",
					"Traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
				} {
					r.Header[name] = []string{value}
				}
				before := r.Header.Clone()
				s.ServeHTTP(httptest.NewRecorder(), r)
				if diff := cmp.Diff(before, r.Header); diff != "" {
					t.Errorf("%s %s with %q modifies the header (-before +after):\n%s", method, path, body, diff)
				}
			}
		}
	}
}
