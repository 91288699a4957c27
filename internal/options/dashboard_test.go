package options_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/internal/inspect"
	"github.com/tutti-server/tutti/internal/options"
)

func TestDashboard(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{"token": "s3cret\n", "empty": "\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	store := options.TraceStore{Bytes: 64 << 20, Every: 100, AtMost: 2000}
	tests := []struct {
		args  []string
		want  options.Dashboard
		store options.TraceStore
		err   string
	}{
		{nil, options.Dashboard{Enabled: true}, store, ""},
		{[]string{"--dashboard=false", "--trace-store-bytes", "0"}, options.Dashboard{}, options.TraceStore{Every: 100, AtMost: 2000}, ""},
		{[]string{"--dashboard-token-file", filepath.Join(dir, "token")}, options.Dashboard{Enabled: true, Token: "s3cret"}, store, ""},
		{
			[]string{"--trace-store-every", "0", "--trace-store-rate", "5", "--trace-param", "a", "--trace-param", "b"},
			options.Dashboard{Enabled: true},
			options.TraceStore{Bytes: 64 << 20, AtMost: 5, Params: []string{"a", "b"}},
			"",
		},
		{
			[]string{"--dashboard-trace-link", "Jaeger=https://j/trace/{trace}", "--dashboard-trace-link=Tempo=https://t/{trace}"},
			options.Dashboard{Enabled: true, Links: []inspect.LinkTemplate{{Name: "Jaeger", URL: "https://j/trace/{trace}"}, {Name: "Tempo", URL: "https://t/{trace}"}}},
			store, "",
		},
		{args: []string{"--dashboard-trace-link", "Jaeger=https://j/trace"}, err: "has no {trace}"},
		{args: []string{"--dashboard-token-file", filepath.Join(dir, "empty")}, err: "is empty"},
		{args: []string{"--dashboard-token-file", filepath.Join(dir, "none")}, err: "unable to read"},
		{args: []string{"--dashboard-token", "a b"}, err: "a header cannot carry"},
		{args: []string{"--trace-store-bytes", "1048575"}, err: "at least 1048576"},
	}
	for _, tt := range tests {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			t.Parallel()
			o, err := options.Parse(append([]string{"--model-repository", dir}, tt.args...), nil)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("error %v, expected '%s'", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, o.Dashboard); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.store, o.TraceStore); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
