package remote_test

import (
	"net/http"
	"testing"

	"github.com/tutti-server/tutti/client"
)

// TestBackground sends requests through two servers. One that is in the background at the first, because a client of HTTP or gRPC says
// so, is in the background at the second; all others are not.
func TestBackground(t *testing.T) {
	t.Parallel()
	p := &probe{}
	far := start(t, p, map[string]string{"m": probeConfig})
	near := start(t, nil, map[string]string{"m": to(far.GRPCAddress(), "")})
	in := client.Of("INPUT", []int64{1, 1}, int32(7))
	for _, tt := range []struct {
		name, value string
		want        bool
	}{{"none", "", false}, {"declared", "1", true}, {"another value", "0", false}} {
		for way, url := range map[string]string{"http": "http://" + near.HTTPAddress(), "grpc": "grpc://" + near.GRPCAddress()} {
			o := &client.Options{}
			if tt.value != "" {
				o.Header = http.Header{"Tutti-Background": {tt.value}}
			}
			c, err := client.DialWith(url, o)
			if err != nil {
				t.Fatal(err)
			}
			_, err = c.Infer(t.Context(), &client.Request{Model: "m", Inputs: []client.Tensor{in}})
			if closed := c.Close(); err != nil || closed != nil {
				t.Fatal(err, closed)
			}
			seen := p.requests()
			if got := seen[len(seen)-1].meta.Background; got != tt.want {
				t.Errorf("%s, %s: background is %v at the far server, want %v", tt.name, way, got, tt.want)
			}
		}
	}
}
