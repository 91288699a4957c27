package sites_test

import (
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/internal/server/sites"
)

func TestPolicy(t *testing.T) {
	t.Parallel()
	p, err := sites.New([]string{"https://tools.example"}, []string{"tutti.example"})
	if err != nil {
		t.Fatal(err)
	}
	machine, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	const origin, host = "--http-allowed-origin", "--http-allowed-host"
	for _, tt := range []struct {
		method, host, origin, site string
		change, page               string // what the error names
	}{
		{"POST", "127.0.0.1:8000", "", "", "", ""},
		{"POST", "models.internal:8000", "", "", "", host}, // a program
		{"POST", "127.0.0.1:8000", "http://127.0.0.1:8000", "same-origin", "", ""},
		{"POST", "[::1]:8000", "http://[::1]:8000", "", "", ""},
		{"POST", "localhost:8000", "http://localhost:8000", "", "", ""},
		{"POST", "tutti.localhost", "http://tutti.localhost", "", "", ""},
		{"POST", machine + ":8000", "http://" + machine + ":8000", "", "", ""},
		{"POST", "Tutti.Example", "https://tutti.example", "same-origin", "", ""},
		{"POST", "127.0.0.1:8000", "https://tools.example", "cross-site", "", ""},
		{"POST", "127.0.0.1:8000", "http://evil.example", "cross-site", "--http-allowed-origin=http://evil.example permits", origin},
		{"POST", "127.0.0.1:8000", "http://evil.example", "", origin, origin},
		{"POST", "127.0.0.1:8000", "http://127.0.0.1:9000", "same-site", origin, origin}, // another server of the machine
		{"POST", "127.0.0.1:8000", "null", "cross-site", "another site", "another site"},
		{"POST", "127.0.0.1:8000", "", "cross-site", "another site", "another site"},
		{"POST", "evil.example:8000", "http://evil.example:8000", "", "--http-allowed-host=evil.example permits", host}, // whose name leads here
		{"POST", "evil.example:8000", "", "same-origin", host, host},
		{"GET", "127.0.0.1:8000", "", "cross-site", "", ""}, // a link
		{"GET", "evil.example:8000", "", "", "", host},
		{"GET", "tutti.example.evil.example", "", "", "", host},
		{"GET", "", "", "", "", ""},
	} {
		r := httptest.NewRequestWithContext(t.Context(), tt.method, "http://x/v2/logging", nil)
		r.Host = tt.host
		for name, value := range map[string]string{"Origin": tt.origin, "Sec-Fetch-Site": tt.site} {
			if value != "" {
				r.Header.Set(name, value)
			}
		}
		check := func(what string, err error, want string) {
			if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s at '%s' from '%s', %s: %s: %v, want %q", tt.method, tt.host, tt.origin, tt.site, what, err, want)
			}
		}
		check("change", p.Change(r), tt.change)
		check("page", p.Page(r), tt.page)
	}
}

func TestAnyHost(t *testing.T) {
	t.Parallel()
	p, err := sites.New(nil, []string{sites.AnyHost})
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequestWithContext(t.Context(), "GET", "http://any.example/ui/", nil)
	if err := p.Page(r); err != nil {
		t.Error(err)
	}
}

func TestPolicyRefuses(t *testing.T) {
	t.Parallel()
	for _, o := range []string{"tools.example", "https://", "https://tools.example/path", ""} {
		if _, err := sites.New([]string{o}, nil); err == nil || !strings.Contains(err.Error(), "the origin '"+o+"' is invalid") {
			t.Errorf("origin '%s': %v", o, err)
		}
	}
	for _, h := range []string{"", "http://tutti.example", "tutti.example:80", "a b"} {
		if _, err := sites.New(nil, []string{h}); err == nil || !strings.Contains(err.Error(), "the host '"+h+"' is invalid") {
			t.Errorf("host '%s': %v", h, err)
		}
	}
}
