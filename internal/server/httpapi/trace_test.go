package httpapi_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/tensor/tensortest"
	"github.com/tutti-server/tutti/internal/server/httpapi"
	"github.com/tutti-server/tutti/internal/server/servertest"
)

// TestTrace traces requests of each kind from the first byte to the last.
func TestTrace(t *testing.T) {
	t.Parallel()
	e := servertest.NewEcho()
	traced := servertest.NewTraced(t, e)
	s := httpapi.New(httpapi.Settings{Infer: traced, Catalog: e, Alloc: tensortest.NewChecked(t, nil), Tracer: traced.Tracer})
	x := `"inputs":[{"name":"X","shape":[1],"datatype":"INT32","data":[5]}]}`
	for _, r := range []struct{ path, body string }{
		{"echo/infer", `{"id":"one",` + x},
		{"echo/infer", `{"id":"bad","inputs":[5]}`},
		{"fail/infer", `{"id":"failed",` + x},
		{"repeat/generate", `{"id":"only","IN":[1]}`},
		{"repeat/generate_stream", `{"id":"many","IN":[1,2]}`},
	} {
		// Without a socket the response is not seen before its end is recorded.
		s.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/v2/models/"+r.path, strings.NewReader(r.body)))
	}
	whole := []string{"HTTP_RECV_START", "HTTP_RECV_END", "HTTP_SEND_START", "HTTP_SEND_END"}
	want := map[string][]string{
		"one": whole, "only": whole, "failed": whole[:2], "many": append(whole[:4:4], "HTTP_SEND_START", "HTTP_SEND_END"),
	}
	if diff := cmp.Diff(want, traced.Stamps(t)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
